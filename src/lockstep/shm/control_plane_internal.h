// The control plane of ranks that share memory: their control blocks, and the state of their
// processes as the kernel reports it.
#pragma once

#include <memory>
#include <string>

#include "lockstep/fabric/control_plane.h"
#include "lockstep/rendezvous/peers.h"
#include "lockstep/shm/group_memory_internal.h"

namespace lockstep {

class ShmControlPlane final : public ControlPlane {
 public:
  ShmControlPlane(std::shared_ptr<GroupMemory> memory, std::shared_ptr<const Peers> peers);

  [[nodiscard]] const Counters& counters() const noexcept override { return blocks_.counters(); }
  [[nodiscard]] CallRecord& own_record(std::uint64_t number) noexcept override {
    return blocks_.own_record(number);
  }
  void enter(std::uint64_t number, std::uint64_t signature) noexcept override {
    blocks_.enter(number, signature);
  }
  void complete(std::uint64_t number) noexcept override { blocks_.complete(number); }
  void set_standing(Standing standing) noexcept override { blocks_.set_standing(standing); }
  void fail(const Cause& cause) noexcept override { blocks_.fail(cause); }
  [[nodiscard]] std::optional<int> find_other_signature(std::uint64_t number,
                                                        std::uint64_t signature) const override;
  [[nodiscard]] const CallRecord& record(int rank, std::uint64_t number) const override {
    return blocks_.record(rank, number);
  }
  [[nodiscard]] Standing standing(int rank) const noexcept override {
    return blocks_.standing(rank);
  }
  [[nodiscard]] Cause cause(int rank) const override { return blocks_.cause(rank); }
  [[nodiscard]] bool is_gone(int rank) const override { return peers_->dead(rank); }
  [[nodiscard]] std::string describe(int rank) const override { return peers_->describe(rank); }
  [[nodiscard]] bool shares_cores() const override {
    return blocks_.count_cores() < blocks_.size();
  }
  void sleep(const Awaited& awaited, int rank, Deadline until) override;
  void wake_others() noexcept override { blocks_.ring(); }
  void set_waits_in(std::uint64_t number) noexcept override;
  [[nodiscard]] std::uint64_t waits_in(int rank) const noexcept override;

 private:
  std::shared_ptr<GroupMemory> memory_;
  ControlBlocks& blocks_;
  std::shared_ptr<const Peers> peers_;
};

}  // namespace lockstep
