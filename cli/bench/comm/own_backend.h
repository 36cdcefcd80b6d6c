// Lockstep's own backend under `lockstep bench comm`.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cli/bench/comm/measure.h"
#include "lockstep/fabric/group.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep::cli {

class OwnBackend final : public TimedBackend {
 public:
  OwnBackend(std::shared_ptr<Group> group, const CommRequest& request);

  [[nodiscard]] int rank() const override { return group_->rank(); }
  [[nodiscard]] bool can(const CommCase&) const override { return true; }
  [[nodiscard]] std::span<std::byte> arena(MemoryKind memory) override {
    return memory == MemoryKind::registered ? registered_->bytes() : ordinary_arena_;
  }
  void call(const CommCase& timed, const CallMemory& memory) override;
  void barrier() override;
  void max_over_ranks(std::span<double> values) override;

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<RegisteredMemory> registered_;
  std::vector<std::byte> ordinary_;
  std::span<std::byte> ordinary_arena_;  // the aligned part of ordinary_
  // Of the last case with owners: made once, because a call may take less than a microsecond.
  std::optional<Owners> owners_;
  CommCase owned_case_;
};

/// Makes a group of the world and times the cases `rounds` times. Collective. Returns the answers
/// of the rounds, with the kind of the group as their name.
[[nodiscard]] std::vector<CommAnswer> measure_own(const World& world, const CommRequest& request,
                                                  int rounds);

}  // namespace lockstep::cli
