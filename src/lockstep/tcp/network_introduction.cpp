// Peers that are connected when one of the two processes first has something for the other. A
// thread of its own connects to them: that may take seconds, in which everything else must move.
#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tcp/network_internal.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kLongestConnect{10};
constexpr std::chrono::seconds kTheirTurn{15};  // longer: the peer may have begun later

}  // namespace

void TcpNetwork::introduce(int peer, const RankAddress& address) {
  const Lock lock(mutex_);
  auto& other = peer_of(peer);
  other.address = address;
  other.link->expect_connection();
  if (connector_.joinable()) return;
  connector_ = std::jthread([this](const std::stop_token& stop) { connect_used(stop); });
}

void TcpNetwork::connect_if_used(int peer, Peer& other) {
  if (!other.address || other.link->is_lost() || other.link->descriptor(0) >= 0 || other.failure ||
      other.is_connecting || std::exchange(other.is_used, true)) {
    return;
  }
  used_.push_back(peer);
  used_changed_.notify_one();
}

// The thread.
void TcpNetwork::connect_used(const std::stop_token& stop) {
  // If this network ends, the socket is shut down, and what waits for it fails.
  const auto keep = [&](int descriptor) {
    const Lock lock(mutex_);
    connecting_ = FileDescriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (stop.stop_requested()) throw SystemError("this process ends", ECANCELED);
  };
  Lock lock(mutex_);
  while (used_changed_.wait(lock, stop, [&] { return !used_.empty(); }) && !stop.stop_requested()) {
    const int peer = used_.front();
    used_.pop_front();
    auto& other = peer_of(peer);
    other.is_used = false;
    const bool is_connected = other.link->descriptor(0) >= 0;  // the peer was faster
    if (is_connected || other.link->is_lost() || other.is_connecting) continue;
    other.is_connecting = true;
    const auto address = *other.address;
    lock.unlock();
    std::string failure;
    bool is_refused = false;
    try {
      connect_to(peer, address, Deadline::after(kLongestConnect), keep);
    } catch (const SystemError& error) {
      failure = error.what();
      is_refused = error.error_number() == ECONNREFUSED;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    lock.lock();
    connecting_ = {};
    other.is_connecting = false;
    const auto their_turn = is_refused || peer < rank_ ? std::chrono::seconds(0) : kTheirTurn;
    if (!failure.empty()) note_failure(peer, failure, their_turn);
    if (waiting_ > 0) ring();
  }
}

// The process with the higher rank refuses the connections of another one while it connects to it:
// such a failure is none if that connection arrives. If some connections exist, the peer has ended
// meanwhile, and what it has sent is read first.
void TcpNetwork::note_failure(int peer, const std::string& why, std::chrono::seconds their_turn) {
  auto& other = peer_of(peer);
  const bool is_begun = other.link->descriptor(0) >= 0;
  if (is_begun && other.opened == Opened::there) return;
  other.failure = Failure{fmt::format("cannot connect to it at {}: {}",
                                      other.address->endpoints.front().to_string(), why),
                          Deadline::after(is_begun ? kTheirTurn : their_turn)};
  if (!is_begun && their_turn.count() == 0) other.link->lose(other.failure->why);
  update(other);
}

}  // namespace lockstep
