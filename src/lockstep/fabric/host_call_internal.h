// A call whose data cross the network once per host: all_reduce, reduce, reduce_scatter, all_gather
// and broadcast, if they are not inline.
//
// Terms: the data are divided into *parts*, each owned by one rank. On every other host one rank is
// the *handler* of a part (HostPlan::sender_to); on the owner's host it is the owner. A reduction
// has two halves. The handler of a part reduces the inputs of its host to partials and sends them
// to the owner, which reduces the partials of all hosts. Then the owner sends the result to the
// handlers, and the ranks of a host copy it from their handler. A gather is the second half alone.
//
// The data move in *rounds*: block `r` of every part in round `r`. Ranks of one host read each
// other's inputs and results in registered memory. If the memory of one of them is not registered,
// they are *staged*: copied through a stage in shared memory, round by round. The hosts decide this
// independently of each other: the network sees the same rounds.
//
// An all_reduce among many hosts of equal sizes can use *rails* instead (host_rails.cpp): the
// elements are divided among the ranks of a host. Each reduces its part over its host, exchanges
// the partial with the ranks of the same index on the other hosts (exchange_plan.h), and the ranks
// of a host copy the results from each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/fabric/host_memory_internal.h"
#include "lockstep/fabric/network_data_plane_internal.h"

namespace lockstep {

class HostCall {
 public:
  /// Whether the data of such a call move this way, if it is not inline.
  [[nodiscard]] static bool handles(const Call& call) noexcept;

  /// States what this rank will receive. Called before it enters. `algorithm` is direct, or that of
  /// the rails of an all_reduce (HostPlan::has_rails).
  HostCall(NetworkCall& call, std::shared_ptr<HostMemory> memory, ExchangeAlgorithm algorithm);
  /// Called when all ranks have entered. `call` must outlive the recipe.
  [[nodiscard]] Recipe move();

 private:
  struct OwnedPart {
    int owner = 0;
    Part range;  // in bytes of the call's longer span
  };

  [[nodiscard]] const Call& made() const noexcept { return call_.call; }
  [[nodiscard]] int rank() const noexcept { return call_.group->rank(); }
  [[nodiscard]] const HostPlan& plan() const noexcept { return memory_->plan(); }
  [[nodiscard]] bool is_reduction() const noexcept { return reduces(made().kind); }
  // Whether all ranks, and therefore all hosts, receive the results.
  [[nodiscard]] bool spreads_results() const noexcept;
  [[nodiscard]] std::vector<OwnedPart> parts_of_call() const;
  // By rails, each rank of a host handles one part, which ranks of other hosts handle there.
  [[nodiscard]] bool uses_rails() const noexcept { return algorithm_ != ExchangeAlgorithm::direct; }
  void expect_by_rails();
  // Where this rank keeps the partial of an element of its part.
  [[nodiscard]] std::byte* rail_partial(std::size_t element);
  [[nodiscard]] const std::byte* prepare_for_rail(const Part& elements, ExchangeData::Use use);
  // Reduces bytes of this rank's part over its host.
  void reduce_for_rail(const Part& block, std::byte* to);
  [[nodiscard]] Recipe move_by_rails();
  [[nodiscard]] Recipe move_directly();
  [[nodiscard]] int handler_of(const OwnedPart& part, int host) const;
  [[nodiscard]] bool is_handled_here(const OwnedPart& part) const {
    return handler_of(part, memory_->host()) == rank();
  }
  [[nodiscard]] std::size_t num_rounds() const noexcept;
  // What round `round` moves of a part, relative to the part.
  [[nodiscard]] Part block_of(const OwnedPart& part, std::size_t round) const noexcept;
  // The bytes of all partials of `host` for elements that have `bytes` in the input.
  [[nodiscard]] std::size_t partial_bytes(int host, std::size_t bytes) const noexcept;

  void expect_data();
  void find_memory();
  void end_phase();
  [[nodiscard]] Awaited phase_ended_by(int other, std::uint64_t phases,
                                       bool last = false) const noexcept;

  [[nodiscard]] const std::byte* input_at(std::size_t index, std::size_t part,
                                          std::size_t offset) const;
  [[nodiscard]] const std::byte* result_at(std::size_t index, std::size_t part,
                                           std::size_t offset) const;
  [[nodiscard]] std::byte* own_result_at(std::size_t part, std::size_t offset);
  // What a round does, in this order.
  void stage_inputs(std::size_t round);
  void send_partials(std::size_t round);
  void reduce_own_part(std::size_t round);
  void send_own_part(std::size_t round);
  void stage_results(std::size_t round);
  void copy_results(std::size_t round);

  void reduce_here(const HostPartial& partial, std::size_t part, const Part& block, std::byte* to);

  NetworkCall& call_;
  std::shared_ptr<HostMemory> memory_;
  ExchangeAlgorithm algorithm_;
  std::vector<OwnedPart> parts_;
  std::size_t own_part_;  // parts_.size() if this rank owns none
  std::size_t block_bytes_;
  // Offsets in the scratch of the call.
  std::vector<std::size_t> incoming_;  // by host: its partials of the own part
  std::vector<std::size_t> outgoing_;  // by part: the partials of this host
  std::size_t result_ = 0;             // of the own part, if its owner does not keep it
  std::size_t temporary_ = 0;          // one block per partial
  bool is_staged_ = false;
  // By rank of this host, unless staged.
  std::vector<const std::byte*> inputs_;
  std::vector<const std::byte*> outputs_;
  std::vector<std::shared_ptr<RegisteredMemory>> registered_;  // kept mapped
};

}  // namespace lockstep
