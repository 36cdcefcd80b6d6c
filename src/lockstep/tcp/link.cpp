#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/tcp/link_internal.h"
#include "lockstep/tcp/loss_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxReasonBytes = 200;

std::size_t unsent_bytes(int descriptor) {
  int bytes = 0;
  return ::ioctl(descriptor, SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

bool Link::attach(Connection connection, const Hello& hello) {
  const int channel = channel_of(hello);
  const auto num_stripes = static_cast<std::size_t>(hello.num_stripes);
  if (is_lost_ || descriptor(channel) >= 0) return false;
  if (stripes_.empty()) stripes_.resize(num_stripes);
  if (stripes_.size() != num_stripes) return false;
  if (channel == 0) {
    messages_.emplace(std::move(connection));
  } else {
    stripes_[static_cast<std::size_t>(hello.stripe)] =
        std::make_unique<Stripe>(Stripe{channel, std::move(connection)});
  }
  pulse(channel).last_heard = Clock::now();
  if (channel == 0) {
    for (const auto& [end, message] : std::exchange(unsent_, {})) post(end, message);
  }
  return true;
}

bool Link::is_up() const noexcept {
  return messages_ && !stripes_.empty() &&
         std::all_of(stripes_.begin(), stripes_.end(),
                     [](const auto& stripe) { return stripe != nullptr; });
}

int Link::descriptor(int channel) const noexcept {
  if (is_lost_ || channel >= num_channels()) return -1;
  if (channel == 0) return messages_ ? messages_->socket.number() : -1;
  const auto& stripe = stripes_[static_cast<std::size_t>(channel - 1)];
  return stripe ? stripe->connection->socket.number() : -1;
}

const Link::Pulse& Link::pulse(int channel) const noexcept {
  return channel == 0 ? pulse_of_messages_ : stripes_[static_cast<std::size_t>(channel - 1)]->pulse;
}

void Link::post(std::uint64_t end, std::span<const std::byte> message) {
  if (is_lost_) return;
  if (!messages_) {
    if (expects_connection_) unsent_.emplace_back(end, std::vector(message.begin(), message.end()));
    return;
  }
  std::vector<std::byte> framed(sizeof(end) + message.size());
  std::memcpy(framed.data(), &end, sizeof(end));
  if (!message.empty()) std::memcpy(framed.data() + sizeof(end), message.data(), message.size());
  const auto sealed = messages_->sealer.seal(framed);
  message_output_.insert(message_output_.end(), sealed.begin(), sealed.end());
  flush_messages();
}

void Link::note(int channel, LinkNote note) {
  if (channel == 0) return post(kLinkEnd, std::as_bytes(std::span(&note, 1)));
  stripes_[static_cast<std::size_t>(channel - 1)]->notes.push_back(note);
  flush_data();
}

void Link::flush() {
  flush_messages();
  if (has_threads()) return flush_at_once();
  flush_in_turn();
}

void Link::flush_messages() {
  while (!is_lost_ && message_output_sent_ < message_output_.size()) {
    const auto left = std::span(message_output_).subspan(message_output_sent_);
    const auto count =
        ::send(messages_->socket.number(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) {
      // What the peer has sent before it closed is read first.
      if (!is_temporary(errno) && errno != EPIPE && errno != ECONNRESET) {
        lose(error_in_words(errno, pulse_of_messages_.acknowledges));
      }
      return;
    }
    message_output_sent_ += static_cast<std::size_t>(count);
  }
  message_output_.clear();
  message_output_sent_ = 0;
}

bool Link::has_output(int channel) const noexcept {
  if (is_lost_ || has_ended(channel)) return false;
  if (channel == 0) return !message_output_.empty();
  const auto& stripe = stripes_[static_cast<std::size_t>(channel - 1)];
  return stripe && (stripe->frame || !stripe->notes.empty() || !queues_.empty());
}

bool Link::is_delivered() const noexcept {
  for (int channel = 0; channel < num_channels(); ++channel) {
    if (descriptor(channel) < 0 || has_ended(channel)) continue;
    if (has_output(channel) || unsent_bytes(descriptor(channel)) > 0) return false;
  }
  return true;
}

bool Link::receive(int channel) {
  if (descriptor(channel) < 0 || has_ended(channel)) return false;
  if (channel == 0) return receive_messages();
  auto& stripe = *stripes_[static_cast<std::size_t>(channel - 1)];
  const bool has_received = receive_data(stripe);
  settle(stripe);
  if (!stripe.notes.empty()) flush_data();  // the answer to a ping
  return has_received;
}

// What a turn of the stripe has found, in whichever thread.
void Link::settle(Stripe& stripe) {
  const auto failure = std::exchange(stripe.failure, std::nullopt);
  if (!failure || is_lost_) return;
  if (failure->error_number != 0) return end(stripe.channel, failure->error_number);
  lose(failure->why);
}

// Returns whether there was something.
bool Link::receive_messages() {
  std::array<std::byte, 64U << 10> buffer;
  const auto count = ::recv(messages_->socket.number(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count < 0 && is_temporary(errno)) return false;
  if (count <= 0) {
    end(0, count < 0 ? errno : ECONNRESET);
    return false;
  }
  pulse_of_messages_.last_heard = Clock::now();
  messages_->opener.feed(std::span(buffer).first(static_cast<std::size_t>(count)));
  try {
    while (!is_lost_) {
      const auto framed = messages_->opener.try_next();
      if (!framed) break;
      std::uint64_t end = 0;
      if (framed->size() < sizeof(end)) {
        lose("it sent an invalid message");
        break;
      }
      std::memcpy(&end, framed->data(), sizeof(end));
      const auto message = std::span<const std::byte>(*framed).subspan(sizeof(end));
      if (end != kLinkEnd) {
        if (!handler_.handle_message(peer_, end, message)) lose("it sent an invalid message");
        continue;
      }
      const auto noted = message.empty() ? LinkNote{} : static_cast<LinkNote>(message[0]);
      if (noted == LinkNote::ping) note(0, LinkNote::pong);
      if (noted == LinkNote::pong) has_answered_ = true;
      if (noted == LinkNote::farewell) said_farewell_ = true;
      if (noted == LinkNote::refusal) {
        const auto text = message.subspan(1, std::min(message.size() - 1, kMaxReasonBytes));
        lose(fmt::format("it closed the connection to this rank: {}",
                         in_quotes({reinterpret_cast<const char*>(text.data()), text.size()})));
      }
    }
  } catch (const SystemError& error) {
    lose(error.what());
  }
  return true;
}

void Link::lose(std::string why) {
  if (is_lost_) return;
  if (!why.empty() && messages_ && !has_ended(0) && !std::exchange(said_why_, true)) {
    // The peer learns the reason, if its connection of messages still works.
    std::vector<std::byte> refusal{static_cast<std::byte>(LinkNote::refusal)};
    const auto text = std::as_bytes(std::span(why));
    refusal.insert(refusal.end(), text.begin(), text.end());
    post(kLinkEnd, refusal);
  }
  is_lost_ = true;
  loss_ = std::move(why);
  unsent_.clear();
  queues_.clear();
  message_output_.clear();
  message_output_sent_ = 0;
  messages_.reset();
  // The objects stay: the functions of a stripe may be running.
  for (const auto& stripe : stripes_) {
    if (!stripe) continue;
    stripe->frame.reset();
    stripe->notes.clear();
    stripe->connection.reset();
  }
}

}  // namespace lockstep
