#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tcp/congestion_internal.h"
#include "lockstep/tcp/network_internal.h"

namespace lockstep {
namespace {

// Of the thread: while callers do the work, and after it has moved what there was of a call.
// Packets gather meanwhile; a turn per packet would interrupt the caller's computation more often.
constexpr std::chrono::milliseconds kRest{2};
constexpr std::uint64_t kMuch = 1U << 20;  // of data: more is waiting
constexpr std::chrono::milliseconds kSlice{50};
constexpr std::size_t kMostEvents = 32;

std::string random_token() {
  const auto nonce = fresh_nonce();
  std::string token;
  for (const auto byte : std::span(nonce).first(8)) {
    token += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return token;
}

FileDescriptor expect_open(int descriptor, const char* what) {
  if (descriptor < 0) throw SystemError(fmt::format("cannot create {}", what), errno);
  return FileDescriptor(descriptor);
}

}  // namespace

TcpNetwork::TcpNetwork(int global_rank, std::vector<Listener> listeners, const Secret& secret,
                       std::shared_ptr<GroupList> groups, std::chrono::milliseconds heartbeat,
                       DataProtection protection, int num_stripes)
    : rank_(global_rank),
      secret_(secret.copy()),
      groups_(std::move(groups)),
      heartbeat_(heartbeat),
      protection_(protection),
      token_(random_token()),
      num_stripes_(num_stripes),
      listeners_(std::move(listeners)),
      congestion_control_(set_congestion_control(listeners_.front().number())),
      keys_(std::make_shared<const HandshakeKeys>(secret_, context(token_))),
      epoll_(expect_open(::epoll_create1(EPOLL_CLOEXEC), "an epoll instance")),
      bell_(expect_open(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "an eventfd")),
      post_([this](int peer, std::uint64_t to, std::span<const std::byte> message) {
        post_locked(peer, to, message);
      }) {
  watch_descriptor(bell_.number(), EPOLLIN, /*is_new=*/true);
  for (const auto& listener : listeners_) {
    (void)set_congestion_control(listener.number());
    watch_descriptor(listener.number(), EPOLLIN, /*is_new=*/true);
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

TcpNetwork::~TcpNetwork() {
  thread_.request_stop();
  ring();
  resting_.notify_all();
  thread_.join();
  constexpr std::chrono::seconds kLongestFarewell{2};
  const auto limit = Deadline::after(kLongestFarewell);
  {
    const Lock lock(mutex_);
    const auto farewell = LinkNote::farewell;
    for (auto& [rank, peer] : peers_) {
      if (peer.link) peer.link->post(kLinkEnd, std::as_bytes(std::span(&farewell, 1)));
    }
  }
  const auto is_delivered = [&] {
    const Lock lock(mutex_);
    return std::all_of(peers_.begin(), peers_.end(), [](const auto& each) {
      const auto& link = each.second.link;
      if (!link) return true;
      const bool may_connect =
          each.second.is_used || each.second.is_connecting || each.second.failure;
      const bool waits = may_connect && !link->is_lost() && !link->is_up() && link->has_unsent();
      return !waits && link->is_delivered();
    });
  };
  // A socket that is closed with unread bytes discards what it has not delivered.
  while (!is_delivered() && !limit.expired()) wait(Deadline::after(std::chrono::milliseconds(1)));
  connector_.request_stop();
  {
    const Lock lock(mutex_);
    if (connecting_) (void)::shutdown(connecting_.number(), SHUT_RDWR);
  }
}

RankAddress TcpNetwork::address_of(std::uint64_t end) const {
  RankAddress address{{}, token_, end, ProcessIdentity::of(::getpid())};
  for (const auto& listener : listeners_) address.endpoints.push_back(listener.endpoint());
  return address;
}

std::uint64_t TcpNetwork::open(NetworkEnd& end) {
  const Lock lock(mutex_);
  ends_[++last_end_].end = &end;
  return last_end_;
}

void TcpNetwork::close(std::uint64_t end) noexcept {
  forget_all(end);
  const Lock lock(mutex_);
  ends_.erase(end);
}

void TcpNetwork::post(int peer, std::uint64_t to, std::span<const std::byte> message) {
  const Lock lock(mutex_);
  post_locked(peer, to, message);
}

void TcpNetwork::post_locked(int peer, std::uint64_t to, std::span<const std::byte> message) {
  auto& other = peer_of(peer);
  other.link->post(to, message);
  connect_if_used(peer, other);
  update(other);
}

void TcpNetwork::expect(int peer, std::uint64_t own, const TransferKey& key,
                        std::span<std::byte> bytes, Word& received) {
  const Lock lock(mutex_);
  auto& end = ends_[own];
  if (!end.is_cut_off) end.expected[{peer, key}] = {bytes, &received, {}};
  connect_if_used(peer, peer_of(peer));  // so that the loss of the peer is noticed
}

void TcpNetwork::send(int peer, std::uint64_t to, std::uint64_t own, const TransferKey& key,
                      std::uint64_t offset, std::span<const std::byte> bytes, Word& sent) {
  const Lock lock(mutex_);
  if (ends_[own].is_cut_off) return;
  auto& other = peer_of(peer);
  other.link->send(own, {to, key, offset, bytes, &sent});
  connect_if_used(peer, other);
  update(other);
}

void TcpNetwork::forget(std::uint64_t own, std::uint64_t number) noexcept {
  const Lock lock(mutex_);
  const auto found = ends_.find(own);
  if (found == ends_.end()) return;
  const auto forgotten = std::erase_if(
      found->second.expected, [&](const auto& each) { return each.first.second.number == number; });
  if (forgotten > 0) found->second.forgotten.insert(number);
  for (auto& [rank, peer] : peers_) {
    if (peer.link) peer.link->forget(own, number);
  }
}

void TcpNetwork::forget_all(std::uint64_t own) noexcept {
  const Lock lock(mutex_);
  const auto found = ends_.find(own);
  if (found == ends_.end()) return;
  found->second.is_cut_off = true;
  found->second.expected.clear();
  for (auto& [rank, peer] : peers_) {
    if (peer.link) peer.link->forget(own, std::nullopt);
  }
}

void TcpNetwork::allow_threads(int most) {
  const Lock lock(mutex_);
  if (most_threads_ == 0) most_threads_ = most;
  add_threads();
}

void TcpNetwork::add_threads() {
  threads_.grow(static_cast<std::size_t>(extra_threads(most_stripes_, most_threads_)));
}

void TcpNetwork::poll() {
  polls_.fetch_add(1, std::memory_order_relaxed);
  std::array<epoll_event, kMostEvents> ready;
  const int count = ::epoll_wait(epoll_.number(), ready.data(), kMostEvents, 0);
  if (count > 0) move(count, ready.data());
}

void TcpNetwork::wait(Deadline until) {
  std::array<epoll_event, kMostEvents> ready;
  ++waiting_;
  const auto slice = std::min(until, Deadline::after(kSlice));
  const int count =
      ::epoll_wait(epoll_.number(), ready.data(), kMostEvents, slice.poll_milliseconds());
  --waiting_;
  move(std::max(count, 0), ready.data());
}

std::uint64_t TcpNetwork::move(int num_ready, const epoll_event* ready) {
  bool has_moved = false;
  std::uint64_t moved = 0;
  std::set<Peer*> put_off;  // they have threads
  {
    const Lock lock(mutex_);
    const auto before = moved_;
    for (int i = 0; i < num_ready; ++i) {
      const int descriptor = ready[i].data.fd;
      if (descriptor == bell_.number()) {
        // The last thread that was woken silences the bell.
        std::uint64_t rings = 0;
        if (waiting_ == 0) (void)!::read(descriptor, &rings, sizeof(rings));
        continue;
      }
      has_moved = true;
      handle(descriptor, put_off);
    }
    for (auto* const peer : put_off) serve(*peer, {});
    watch_peers();
    moved = moved_ - before;
  }
  if (has_moved && waiting_ > 0) ring();
  return moved;
}

bool TcpNetwork::is_lost(int peer) const noexcept {
  const Lock lock(mutex_);
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.link && found->second.link->is_lost();
}

std::string TcpNetwork::loss_of(int peer) const {
  const Lock lock(mutex_);
  const auto found = peers_.find(peer);
  return found == peers_.end() || !found->second.link ? "" : found->second.link->loss();
}

bool TcpNetwork::handle_message(int peer, std::uint64_t end, std::span<const std::byte> message) {
  const auto found = ends_.find(end);
  return found == ends_.end() || found->second.end->receive(peer, message, post_);
}

LinkHandler::Destination* TcpNetwork::find_destination(int peer, std::uint64_t end,
                                                       const TransferKey& key) {
  const auto found = ends_.find(end);
  if (found == ends_.end()) return nullptr;
  const auto expected = found->second.expected.find({peer, key});
  return expected == found->second.expected.end() ? nullptr : &expected->second;
}

void TcpNetwork::drop_destination(int peer, std::uint64_t end, const TransferKey& key) {
  ends_[end].expected.erase({peer, key});
}

bool TcpNetwork::may_arrive_late(std::uint64_t end, const TransferKey& key) const {
  const auto found = ends_.find(end);
  if (found == ends_.end()) return end <= last_end_;  // it was closed
  return found->second.is_cut_off || found->second.forgotten.contains(key.number);
}

TcpNetwork::Peer& TcpNetwork::peer_of(int peer) {
  auto& found = peers_[peer];
  LinkHandler& handler = *this;
  if (!found.link) found.link = std::make_unique<Link>(peer, handler, protection_, &threads_);
  return found;
}

void TcpNetwork::handle(int descriptor, std::set<Peer*>& put_off) {
  for (auto& listener : listeners_) {
    if (descriptor == listener.number()) return accept_newcomers(listener);
  }
  const auto found = sources_.find(descriptor);
  if (found == sources_.end()) return;
  const auto source = found->second;
  if (source.peer == nullptr) return handle_newcomer(source.newcomer);
  auto& link = *source.peer->link;
  if (!link.has_threads()) return serve(*source.peer, source.channel);
  if (source.channel > 0) link.put_off(source.channel);
  if (source.channel == 0) (void)link.receive(source.channel);
  put_off.insert(source.peer);
}

void TcpNetwork::serve(Peer& peer, std::optional<int> channel) {
  const auto before = peer.link->moved();
  if (channel) (void)peer.link->receive(*channel);
  peer.link->flush();
  moved_ += peer.link->moved() - before;
  update(peer);
}

void TcpNetwork::watch_descriptor(int descriptor, std::uint32_t events, bool is_new) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  (void)::epoll_ctl(epoll_.number(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, descriptor, &event);
}

void TcpNetwork::announce_loss(Peer& peer) {
  if (!peer.link->is_lost() || std::exchange(peer.is_announced, true)) return;
  for (auto& [number, end] : ends_) end.end->lose(peer.link->peer(), peer.link->loss(), post_);
}

// Waits for room in a socket only while bytes wait for it.
void TcpNetwork::update(Peer& peer) {
  announce_loss(peer);
  if (peer.link->is_lost() && !peer.watched.empty()) {
    std::erase_if(sources_, [&](const auto& each) { return each.second.peer == &peer; });
    peer.watched.clear();
  }
  // The kernel would report the end of a connection again and again.
  std::erase_if(peer.watched, [&](const auto& each) {
    if (!peer.link->has_ended(each.first)) return false;
    const int descriptor = peer.link->descriptor(each.first);
    sources_.erase(descriptor);
    return ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr) == 0;
  });
  some_end_ = some_end_ || peer.link->is_ending();
  for (auto& [channel, events] : peer.watched) {
    const std::uint32_t wanted = EPOLLIN | (peer.link->has_output(channel) ? EPOLLOUT : 0U);
    if (std::exchange(events, wanted) != wanted) {
      watch_descriptor(peer.link->descriptor(channel), wanted, /*is_new=*/false);
    }
  }
}

void TcpNetwork::watch_peers() {
  const auto now = Clock::now();
  if (std::exchange(some_end_, false)) {
    for (auto& [rank, peer] : peers_) {
      if (!peer.link || !peer.link->is_ending()) continue;
      peer.link->watch_ends(now);
      update(peer);
    }
  }
  const auto interval = now - last_watch_;
  if (interval < heartbeat_ / 12) return;
  last_watch_ = now;
  for (auto& [rank, peer] : peers_) {
    if (!peer.link) continue;
    // Only this process was stopped or got no processor: it could not hear the peers meanwhile.
    if (interval > heartbeat_ / 3) peer.link->excuse(interval);
    peer.link->watch(now, heartbeat_);
    if (peer.failure && peer.failure->until.expired() && !peer.link->is_up()) {
      peer.link->lose(peer.failure->why);
    }
    update(peer);
  }
  for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end();) {
    const auto next = std::next(newcomer);
    if (newcomer->deadline.expired()) drop(newcomer);
    newcomer = next;
  }
}

void TcpNetwork::ring() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(bell_.number(), &one, sizeof(one));
}

void TcpNetwork::settle() {
  const Lock lock(mutex_);
  watch_peers();
  for (auto& [number, end] : ends_) end.end->settle(post_);
}

void TcpNetwork::rest(const std::stop_token& stop) {
  std::unique_lock lock(resting_mutex_);
  resting_.wait_for(lock, stop, kRest, [] { return false; });
}

void TcpNetwork::run(const std::stop_token& stop) {
  std::uint64_t seen = 0;
  while (!stop.stop_requested()) {
    settle();
    const auto polls = polls_.load(std::memory_order_relaxed);
    if (std::exchange(seen, polls) != polls || waiting_ > 0) {
      rest(stop);
      continue;
    }
    std::array<epoll_event, kMostEvents> ready;
    const int timeout = static_cast<int>(std::min(kSlice, heartbeat_ / 12).count());
    const int count = ::epoll_wait(epoll_.number(), ready.data(), kMostEvents, timeout);
    const auto moved = move(std::max(count, 0), ready.data());
    // Also if nothing has arrived: a group that its caller had locked was left out of the turn
    // before.
    groups_->advance_others(*this);
    // Groups that wait for something poll too. Without one, the thread serves new connections and
    // heartbeats, which must not wait.
    const auto before = std::exchange(seen, polls_.load(std::memory_order_relaxed));
    if (seen != before && moved < kMuch) rest(stop);
  }
}

}  // namespace lockstep
