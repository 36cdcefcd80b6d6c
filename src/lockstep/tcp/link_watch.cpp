// Whether the peer of a link still answers, and what it means that connections end.
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "lockstep/tcp/link_internal.h"
#include "lockstep/tcp/loss_internal.h"

namespace lockstep {

struct Link::Sample {
  // Not once the kernel has given up the connection: it has forgotten the rest then.
  bool is_valid = false;
  bool is_acknowledged = false;  // everything that was sent
  bool resends = false;
  unsigned packet_bytes = 0;

  static Sample of(int descriptor) {
    tcp_info info{};
    socklen_t size = sizeof(info);
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    return {.is_valid = info.tcpi_state == TCP_ESTABLISHED,
            .is_acknowledged = info.tcpi_unacked == 0,
            .resends = info.tcpi_retransmits > 0,
            .packet_bytes = info.tcpi_snd_mss};
  }
};

// Each connection by itself: a device on the way may drop one of them.
void Link::watch(Clock::time_point now, Clock::duration limit) {
  for (int channel = 0; channel < num_channels(); ++channel) {
    if (is_lost_) return;
    if (descriptor(channel) < 0 || has_ended(channel)) continue;
    auto& own = pulse(channel);
    const auto sample = Sample::of(descriptor(channel));
    if (sample.is_valid) own.acknowledges = sample.is_acknowledged;
    const auto silent = now - own.last_heard;
    if (channel > 0 &&
        drops_large_packets(*stripes_[static_cast<std::size_t>(channel - 1)], sample, now, limit)) {
      return lose(fmt::format(
          "messages arrive, but data do not: the network seems to drop large packets. Compare the "
          "MTU of both interfaces and of the network between them; packets here have {} bytes",
          sample.packet_bytes));
    }
    if (silent > limit) return lose(silence_in_words(own.acknowledges));
    if (silent < limit / 3 || now - own.last_ping < limit / 3) continue;
    own.last_ping = now;
    note(channel, LinkNote::ping);
  }
}

void Link::excuse(Clock::duration silence) noexcept {
  pulse_of_messages_.last_heard += silence;
  for (const auto& stripe : stripes_) {
    if (stripe) stripe->pulse.last_heard += silence;
  }
}

bool Link::has_ended(int channel) const noexcept {
  return descriptor(channel) >= 0 && pulse(channel).has_ended;
}

// If the process of the peer has ended, all connections end. What each has brought is read first:
// the data that complete a call, and the reason for which the peer ended.
void Link::end(int channel, int error_number) {
  pulse(channel).has_ended = true;
  const auto now = Clock::now();
  if (error_number == ECONNRESET || error_number == EPIPE) {
    if (!first_end_) {
      first_end_ = last_open_ = now;
      has_answered_ = false;
    }
    return watch_ends(now);
  }
  read_rest();
  lose(said_farewell_ ? std::string() : error_in_words(error_number, pulse(channel).acknowledges));
}

// A machine that has lost the connections, because it has restarted, resets each when something
// arrives through it. So does the kernel of a process that has ended, and drops what it has not
// delivered of the others: it has time for that before.
void Link::ask_others() {
  for (int channel = 0; channel < num_channels() && !is_lost_; ++channel) {
    if (descriptor(channel) >= 0 && !has_ended(channel)) note(channel, LinkNote::ping);
  }
}

// At most what a socket can hold: a peer that has noticed nothing continues to send.
void Link::read_rest() {
  constexpr int kMostTurns = 64;
  for (int channel = 0; channel < num_channels(); ++channel) {
    for (int turn = 0; turn < kMostTurns && receive(channel); ++turn) {
    }
  }
}

void Link::watch_ends(Clock::time_point now) {
  read_rest();
  if (is_lost_) return;
  int connections = 0;
  int ended = 0;
  for (int channel = 0; channel < num_channels(); ++channel) {
    if (descriptor(channel) >= 0) ++connections;
    if (has_ended(channel)) ++ended;
  }
  if (ended < connections) {
    const bool was_due = last_open_ - *first_end_ >= kEndingTime;
    last_open_ = now;  // times in which this process had no processor do not count
    if (!was_due && now - *first_end_ >= kEndingTime) ask_others();
    if (is_lost_) return;
  }
  auto why = ends_in_words(ended, connections, last_open_ - *first_end_, has_answered_);
  if (why) lose(said_farewell_ ? std::string() : std::move(*why));
}

// Packets of data are as large as the MTU of this machine's interface, those of heartbeats are
// small. If a part of the network has a smaller MTU and does not say so, only the small ones pass.
// Decided before the kernel gives up the connection, at `limit`: it would know only a timeout.
bool Link::drops_large_packets(Stripe& stripe, const Sample& sample, Clock::time_point now,
                               Clock::duration limit) {
  if (sample.is_acknowledged || !sample.resends) {
    stripe.stalled_since.reset();
    return false;
  }
  if (!stripe.stalled_since) stripe.stalled_since = now;
  // A link that is cut loses messages too, in one direction or in both: those that arrived before
  // the stall do not count, and the peer must have those of this rank.
  const auto silent = now - pulse_of_messages_.last_heard;
  return pulse_of_messages_.acknowledges && now - *stripe.stalled_since > limit / 2 &&
         silent < limit * 9 / 20;
}

}  // namespace lockstep
