// The data plane of ranks that share memory: each rank reads and writes the memory of the others
// directly. recipes_internal.h describes the algorithms.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/transport.h"
#include "lockstep/rendezvous/peers.h"
#include "lockstep/shm/connect.h"
#include "lockstep/shm/group_memory_internal.h"
#include "lockstep/shm/memory_exchange_internal.h"
#include "lockstep/shm/messages_internal.h"
#include "lockstep/shm/recipes_internal.h"

namespace lockstep {

class ShmDataPlane final : public DataPlane {
 public:
  ShmDataPlane(const ShmOptions& options, std::shared_ptr<GroupRegistry> registry,
               std::unique_ptr<MemoryExchange> exchange, std::shared_ptr<GroupMemory> memory,
               std::shared_ptr<const Peers> peers);

  [[nodiscard]] std::string kind() const override { return "shm"; }
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] std::optional<std::string> refusal_of(const Device& device) const override;
  void tune(Group& group) override;

  [[nodiscard]] std::shared_ptr<CallOperation> prepare(const Call& call,
                                                       std::uint64_t number) override;
  [[nodiscard]] Recipe begin(CallOperation& operation, bool same_memory) override;
  void look_ahead(CallOperation& oldest) noexcept override;
  void retire(CallOperation& operation, bool is_last) noexcept override;
  [[nodiscard]] std::shared_ptr<MessageOperation> send(const Message& message,
                                                       std::span<const std::byte> bytes) override;
  [[nodiscard]] std::shared_ptr<MessageOperation> receive(const Message& message,
                                                          std::span<std::byte> bytes) override;
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes, const Device& device,
                                                           Deadline deadline,
                                                           const Watch& watch) override;
  void give_up() noexcept override { memory_->give_up(); }
  void cut_off() override;

  /// Sets the one-shot threshold. Every rank sets the same value.
  void set_one_shot_bytes(std::size_t bytes) noexcept { one_shot_bytes_ = bytes; }

 private:
  [[nodiscard]] int rank() const noexcept { return memory_->blocks().rank(); }
  [[nodiscard]] int size() const noexcept { return memory_->blocks().size(); }
  [[nodiscard]] bool is_one_shot(const Call& call) const noexcept;

  const ShmOptions options_;
  std::shared_ptr<GroupRegistry> registry_;
  std::unique_ptr<MemoryExchange> exchange_;
  std::shared_ptr<GroupMemory> memory_;
  std::shared_ptr<const Peers> peers_;
  std::optional<std::size_t> one_shot_bytes_;  // nullopt: not yet known
  std::uint64_t phases_ = 0;
  std::uint64_t rounds_ = 0;
  std::vector<MessageState> message_states_;  // by peer
};

/// Measures the one-shot threshold of `group`, whose data plane is `plane`: the largest inline
/// input for which one-shot is at least as fast as two-shot. Collective. Returns the same value on
/// every rank.
[[nodiscard]] std::size_t measure_one_shot_bytes(Group& group, ShmDataPlane& plane);

}  // namespace lockstep
