// What the groups of one world share in a process: each other, so that a wait in one group also
// advances the others (two ranks may wait for the same two operations in different order), and what
// is looked up or measured once.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/rendezvous/peers.h"

namespace lockstep {

class GroupRegistryMember {
 public:
  GroupRegistryMember() = default;
  GroupRegistryMember(const GroupRegistryMember&) = delete;
  GroupRegistryMember& operator=(const GroupRegistryMember&) = delete;
  virtual ~GroupRegistryMember() = default;

  /// Does what can be done without waiting, unless another thread is at it.
  virtual void try_advance() noexcept = 0;
  /// The call in which `global_rank` waits for this rank, which has not entered it; in words.
  [[nodiscard]] virtual std::optional<std::string> awaits_this_rank(int global_rank) = 0;
};

class GroupRegistry {
 public:
  void add(GroupRegistryMember& member) {
    const std::lock_guard lock(mutex_);
    members_.push_back(&member);
  }
  void remove(GroupRegistryMember& member) {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &member);
  }

  /// How many operations of all groups are not done.
  void count_pending(int change) noexcept { pending_.fetch_add(change, std::memory_order_relaxed); }
  [[nodiscard]] int pending() const noexcept { return pending_.load(std::memory_order_relaxed); }

  void advance_others(const GroupRegistryMember& own) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // another thread is at it
    for (auto* member : members_) {
      if (member != &own) member->try_advance();
    }
  }

  /// What keeps another rank, by its number in the world, from the call that this rank waits in: a
  /// call of another group that this rank has not entered. Neither can continue then.
  [[nodiscard]] std::optional<std::string> find_cycle(const GroupRegistryMember& own,
                                                      int global_rank) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    for (auto* member : members_) {
      if (!lock || member == &own) continue;
      if (auto words = member->awaits_this_rank(global_rank)) return words;
    }
    return std::nullopt;
  }

  /// Shared by the groups.
  [[nodiscard]] ProcessWatches& watches() noexcept { return watches_; }

  /// For the names of groups: 0, 1, … in the order they are made, equal on all ranks.
  [[nodiscard]] int next_group() noexcept { return groups_.fetch_add(1); }

  /// The one-shot threshold measured for a group of `size`, if it was.
  [[nodiscard]] std::optional<std::size_t> threshold(int size) {
    const std::lock_guard lock(mutex_);
    const auto found = thresholds_.find(size);
    return found == thresholds_.end() ? std::nullopt : std::optional(found->second);
  }
  void set_threshold(int size, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    thresholds_[size] = bytes;
  }

 private:
  std::mutex mutex_;
  ProcessWatches watches_;
  std::vector<GroupRegistryMember*> members_;  // mutex_
  std::map<int, std::size_t> thresholds_;      // mutex_
  std::atomic<int> pending_ = 0;
  std::atomic<int> groups_ = 0;
};

}  // namespace lockstep
