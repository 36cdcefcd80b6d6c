// The state that the groups of one world share in a process: the list of groups, so that a wait in
// one group also advances the others (two ranks may wait for the same two operations in a different
// order), and values that are looked up or measured once.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/rendezvous/network_settings.h"
#include "lockstep/rendezvous/peers.h"

namespace lockstep {

class GroupRegistryMember {
 public:
  GroupRegistryMember() = default;
  GroupRegistryMember(const GroupRegistryMember&) = delete;
  GroupRegistryMember& operator=(const GroupRegistryMember&) = delete;
  virtual ~GroupRegistryMember() = default;

  /// Advances as far as possible without waiting. Does nothing while another thread advances.
  virtual void try_advance() noexcept = 0;
  /// Describes the call in which `global_rank` waits for this rank, which has not entered it.
  [[nodiscard]] virtual std::optional<std::string> awaits_this_rank(int global_rank) = 0;
};

/// The groups of a world in this process. Shared with the threads of networks, which may outlive
/// the world: a group keeps its network.
class GroupList {
 public:
  void add(GroupRegistryMember& member) {
    const std::lock_guard lock(mutex_);
    members_.push_back(&member);
  }
  void remove(GroupRegistryMember& member) {
    const std::lock_guard lock(mutex_);
    std::erase(members_, &member);
  }

  void advance_others(const GroupRegistryMember& own) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // another thread advances them
    for (auto* member : members_) {
      if (member != &own) member->try_advance();
    }
  }

  /// Describes a cycle of waits: the call of another group in which `global_rank` waits for this
  /// rank, while this rank waits for `global_rank` in group `own`. Neither can continue then.
  [[nodiscard]] std::optional<std::string> find_cycle(const GroupRegistryMember& own,
                                                      int global_rank) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    for (auto* member : members_) {
      if (!lock || member == &own) continue;
      if (auto words = member->awaits_this_rank(global_rank)) return words;
    }
    return std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::vector<GroupRegistryMember*> members_;  // mutex_
};

class GroupRegistry {
 public:
  [[nodiscard]] const std::shared_ptr<GroupList>& groups() const noexcept { return groups_; }

  /// The number of incomplete operations of all groups.
  void count_pending(int change) noexcept { pending_.fetch_add(change, std::memory_order_relaxed); }
  [[nodiscard]] int pending() const noexcept { return pending_.load(std::memory_order_relaxed); }

  /// How the job uses the network. Set once, before the first group.
  [[nodiscard]] const NetworkSettings& network_settings() const noexcept { return settings_; }
  void set_network_settings(NetworkSettings settings) { settings_ = std::move(settings); }

  /// The connections of a network, shared by the groups: created by the first that needs them. Set
  /// and used only while a group is created.
  [[nodiscard]] std::shared_ptr<void>& network() noexcept { return network_; }

  /// A network that the program has given to the world, before its first group: MPI. Null if none.
  [[nodiscard]] std::shared_ptr<void>& given_network() noexcept { return given_network_; }

  /// The watched processes, shared by the groups.
  [[nodiscard]] ProcessWatches& watches() noexcept { return watches_; }

  /// The next number for the name of a group: 0, 1, … in the order of construction, which is the
  /// same on all ranks.
  [[nodiscard]] int next_group() noexcept { return num_groups_.fetch_add(1); }

  /// The one-shot threshold measured for groups of `size`; nullopt if none was measured.
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
  NetworkSettings settings_;
  std::mutex mutex_;
  ProcessWatches watches_;
  const std::shared_ptr<GroupList> groups_ = std::make_shared<GroupList>();
  std::map<int, std::size_t> thresholds_;  // mutex_
  std::atomic<int> pending_ = 0;
  std::atomic<int> num_groups_ = 0;
  std::shared_ptr<void> given_network_;
  std::shared_ptr<void> network_;
};

}  // namespace lockstep
