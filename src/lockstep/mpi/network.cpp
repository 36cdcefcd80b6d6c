#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/thread_time.h"
#include "lockstep/mpi/network_internal.h"

namespace lockstep {
namespace {

constexpr std::chrono::microseconds kShortestSleep{20};
constexpr std::chrono::microseconds kLongestSleep{1'000};
constexpr std::chrono::milliseconds kRest{2};  // of the thread, while callers do the work

void expect_success(int error, const char* what) {
  if (error == MPI_SUCCESS) return;
  throw SystemError(fmt::format("{} failed: {}", what, mpi_error_in_words(error)), 0);
}

}  // namespace

MpiNetwork::MpiNetwork(MPI_Comm communicator,
                       const std::vector<std::optional<ProcessIdentity>>& processes,
                       GroupRegistry& registry, MpiProgress progress)
    : has_thread_(progress != MpiProgress::callers),
      communicator_(communicator),
      groups_(registry.groups()),
      post_([this](int peer, std::uint64_t to, std::span<const std::byte> message) {
        post_locked(peer, to, message);
      }) {
  for (const auto& process : processes) {
    watches_.push_back(process ? registry.watches().watch(*process) : nullptr);
  }
  expect_success(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN),
                 "MPI_Comm_set_errhandler");
  // MPI_Finalize first removes the attributes of MPI_COMM_SELF.
  const auto end = [](MPI_Comm, int, void* network, void*) {
    static_cast<MpiNetwork*>(network)->shut_down();
    return MPI_SUCCESS;
  };
  expect_success(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end, &finalize_key_, nullptr),
                 "MPI_Comm_create_keyval");
  expect_success(MPI_Comm_set_attr(MPI_COMM_SELF, finalize_key_, this), "MPI_Comm_set_attr");
  if (!has_thread_) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

MpiNetwork::~MpiNetwork() {
  int is_finalised = 0;
  MPI_Finalized(&is_finalised);
  if (is_finalised != 0) return;
  MPI_Comm_delete_attr(MPI_COMM_SELF, finalize_key_);  // shuts down
  MPI_Comm_free_keyval(&finalize_key_);
}

void MpiNetwork::shut_down() {
  thread_.request_stop();
  resting_.notify_all();
  if (thread_.joinable()) thread_.join();
  constexpr std::chrono::seconds kLongestFarewell{2};
  const auto limit = Deadline::after(kLongestFarewell);
  const Lock lock(mutex_);
  for (auto& [rank, peer] : peers_) {
    peer.queues.clear();
    send_packet({.peer = rank});
  }
  while (!is_at_rest() && !limit.expired()) {
    if (!move()) std::this_thread::sleep_for(kShortestSleep);
  }
  is_down_ = true;
  if (is_at_rest()) {
    MPI_Comm_free(&communicator_);
  } else {
    // A peer has not answered. MPI may access these packets later: their memory stays.
    new std::vector(std::move(tracked_));
  }
}

bool MpiNetwork::is_at_rest() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& each) {
    return each.second.said_farewell && each.second.packets_on_the_way == 0;
  });
}

std::uint64_t MpiNetwork::open(NetworkEnd& end) {
  const Lock lock(mutex_);
  ends_[++last_end_].end = &end;
  return last_end_;
}

void MpiNetwork::close(std::uint64_t end) noexcept {
  forget_all(end);
  const Lock lock(mutex_);
  ends_.erase(end);
}

void MpiNetwork::post(int peer, std::uint64_t to, std::span<const std::byte> message) {
  const Lock lock(mutex_);
  post_locked(peer, to, message);
}

void MpiNetwork::expect(int peer, std::uint64_t own, const TransferKey& key,
                        std::span<std::byte> bytes, Word& received) {
  const Lock lock(mutex_);
  auto& end = ends_[own];
  if (!end.is_cut_off) end.expected[{peer, key}] = {bytes, &received};
}

void MpiNetwork::send(int peer, std::uint64_t to, std::uint64_t own, const TransferKey& key,
                      std::uint64_t offset, std::span<const std::byte> bytes, Word& sent) {
  const Lock lock(mutex_);
  if (ends_[own].is_cut_off) return;
  auto& other = peers_[peer];
  other.queues[own].push_back({to, key, offset, bytes, &sent});
  send_pieces(peer, other);
}

void MpiNetwork::forget(std::uint64_t own, std::uint64_t number) noexcept {
  const Lock lock(mutex_);
  const auto found = ends_.find(own);
  if (found == ends_.end()) return;
  const auto forgotten = std::erase_if(
      found->second.expected, [&](const auto& each) { return each.first.second.number == number; });
  if (forgotten > 0) found->second.forgotten.insert(number);
  for (auto& [rank, peer] : peers_) {
    const auto queue = peer.queues.find(own);
    if (queue == peer.queues.end()) continue;
    std::erase_if(queue->second, [&](const auto& each) { return each.key.number == number; });
  }
  forget_pieces(own, number);
}

void MpiNetwork::forget_all(std::uint64_t own) noexcept {
  const Lock lock(mutex_);
  const auto found = ends_.find(own);
  if (found == ends_.end()) return;
  found->second.is_cut_off = true;
  found->second.expected.clear();
  for (auto& [rank, peer] : peers_) peer.queues.erase(own);
  forget_pieces(own, std::nullopt);
}

void MpiNetwork::poll() {
  polls_.fetch_add(1, std::memory_order_relaxed);
  const Lock lock(mutex_);
  if (move()) idle_waits_ = 0;
}

void MpiNetwork::wait(Deadline until) {
  {
    const Lock lock(mutex_);
    if (move()) {
      idle_waits_ = 0;
      return;
    }
  }
  const int doublings = std::min(idle_waits_.fetch_add(1), 6);
  const auto longest = std::chrono::duration_cast<std::chrono::microseconds>(until.remaining());
  ++waiting_;
  std::this_thread::sleep_for(
      std::clamp(kShortestSleep * (1 << doublings), std::chrono::microseconds(0),
                 std::max(std::min(longest, kLongestSleep), std::chrono::microseconds(0))));
  --waiting_;
  poll();
}

bool MpiNetwork::is_lost(int peer) const noexcept {
  {
    const Lock lock(mutex_);
    const auto found = peers_.find(peer);
    if (is_down_ || (found != peers_.end() && found->second.loss)) return true;
  }
  const auto& watch = watches_[static_cast<std::size_t>(peer)];
  if (!watch) return false;
  pollfd watched{watch->number(), POLLIN, 0};
  return !*watch || (::poll(&watched, 1, 0) > 0 && watched.revents != 0);
}

std::string MpiNetwork::loss_of(int peer) const {
  const Lock lock(mutex_);
  const auto found = peers_.find(peer);
  if (found != peers_.end() && found->second.loss) return *found->second.loss;
  return is_down_ ? "this process has called MPI_Finalize" : "";
}

double MpiNetwork::thread_seconds() noexcept {
  return thread_.joinable() ? processor_seconds_of(thread_.native_handle()) : 0;
}

void MpiNetwork::settle() {
  const Lock lock(mutex_);
  for (auto& [number, end] : ends_) end.end->settle(post_);
}

void MpiNetwork::run(const std::stop_token& stop) {
  std::uint64_t seen = 0;
  int idle = 0;
  while (!stop.stop_requested()) {
    settle();
    const auto polls = polls_.load(std::memory_order_relaxed);
    auto rest = std::chrono::microseconds(kRest);
    if (std::exchange(seen, polls) == polls && waiting_ == 0) {
      bool has_arrived = false;
      bool is_busy = false;
      {
        const Lock lock(mutex_);
        has_arrived = move();
        is_busy = !requests_.empty();
      }
      // In every turn: a group that its caller had locked was left out of the turn before.
      groups_->advance_others(*this);
      seen = polls_.load(std::memory_order_relaxed);  // groups that wait for something poll too
      idle = has_arrived || is_busy ? 0 : std::min(idle + 1, 6);
      rest = std::min(kShortestSleep * (1 << idle), kLongestSleep);
    }
    Lock lock(resting_mutex_);
    resting_.wait_for(lock, stop, rest, [] { return false; });
  }
}

}  // namespace lockstep
