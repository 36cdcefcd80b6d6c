// The engines of one world and process, so that a wait in one group also moves the others on: two
// ranks may wait for the same two operations in different order.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep {

class ProgressMember {
 public:
  ProgressMember() = default;
  ProgressMember(const ProgressMember&) = delete;
  ProgressMember& operator=(const ProgressMember&) = delete;
  virtual ~ProgressMember() = default;

  /// Does what can be done without waiting, unless another thread is at it.
  virtual void try_advance() noexcept = 0;
};

class Progress {
 public:
  void add(ProgressMember& member) {
    const std::lock_guard lock(mutex_);
    members_.push_back(&member);
  }
  void remove(ProgressMember& member) {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &member);
  }

  /// How many operations of all engines are not done.
  void count_pending(int change) noexcept { pending_.fetch_add(change, std::memory_order_relaxed); }
  [[nodiscard]] int pending() const noexcept { return pending_.load(std::memory_order_relaxed); }

  void advance_others(const ProgressMember& own) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // another thread is at it
    for (auto* member : members_) {
      if (member != &own) member->try_advance();
    }
  }

  /// For the names of groups: 0, 1, … in the order they are made, equal on all ranks.
  [[nodiscard]] int next_group() noexcept { return groups_.fetch_add(1); }

  /// The switch point measured for a group of `size`, if it was.
  [[nodiscard]] std::optional<std::size_t> switch_point(int size) {
    const std::lock_guard lock(mutex_);
    const auto found = switch_points_.find(size);
    return found == switch_points_.end() ? std::nullopt : std::optional(found->second);
  }
  void set_switch_point(int size, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    switch_points_[size] = bytes;
  }

 private:
  std::mutex mutex_;
  std::vector<ProgressMember*> members_;      // mutex_
  std::map<int, std::size_t> switch_points_;  // mutex_
  std::atomic<int> pending_ = 0;
  std::atomic<int> groups_ = 0;
};

}  // namespace lockstep
