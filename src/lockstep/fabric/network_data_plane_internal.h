// The data plane of ranks connected by a network.
//
// Inputs up to inline_bytes travel with their call: when all ranks have entered, each computes what
// it needs. Larger data follow when all ranks have entered, so that every byte is received at its
// destination. A *direct* reduction divides the elements into one part per rank, its owner. Every
// rank sends each part to its owner, which reduces it in the order of the tree, block by block, and
// sends the result back. Per rank, 2S(N-1)/N bytes are sent and received. Other reductions move
// between members (exchange_plan.h, ring.h). If the ranks of a host share memory, such data cross
// the network once per host (host_call_internal.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fabric/exchange_internal.h"
#include "lockstep/fabric/host_plan.h"
#include "lockstep/fabric/network_group_internal.h"
#include "lockstep/fabric/network_planes.h"

namespace lockstep {

// The data of a call in bytes: what one rank sends to another, and where that one receives it.
namespace exchange {

/// The bytes of the input of `rank` that `to` needs, if `to` computes the whole result it keeps.
[[nodiscard]] std::span<const std::byte> input_for(const Call& call, int rank, int to);
/// What all ranks receive instead if they relay it.
[[nodiscard]] std::span<const std::byte> input_for_all(const Call& call, int rank, int to);
/// What `to` needs of the input that was sent to all.
[[nodiscard]] std::span<const std::byte> needed_of(const Call& call,
                                                   std::span<const std::byte> input, int to);
/// The part of the elements that `owner` reduces, in bytes of the input. If the kind has owners,
/// only its length is meant: that of all ranges of the owner.
[[nodiscard]] Part owned_by(const Call& call, int owner, int size);
/// Whether results are sent by their owners: to all ranks, or to the root.
[[nodiscard]] bool returns_results(Collective kind) noexcept;
/// Whether `rank` keeps the result of a call that returns results.
[[nodiscard]] bool keeps_results(const Call& call, int rank) noexcept;
/// The bytes of the output of `rank` that hold the data of `from`; not for reductions.
[[nodiscard]] Part received_from(const Call& call, int from, int rank, int size);

}  // namespace exchange

class HostCall;
class HostMemory;

class NetworkCall final : public CallOperation {
 public:
  explicit NetworkCall(std::shared_ptr<NetworkGroup> group_of_call);
  ~NetworkCall() override;

  using Word = Network::Word;
  std::shared_ptr<NetworkGroup> group;
  bool is_inline = false;
  bool transfers = false;       // is not inline, and has expected data
  std::size_t block_bytes = 0;  // in which its data move
  // By rank, in bytes.
  std::vector<Word> arrived;
  std::vector<Word> results;
  std::vector<Word> sent;
  std::vector<Word> ranges;  // by range of all owners, if the call gathers from them
  std::vector<std::uint64_t> queued;
  Bytes scratch = {};              // the parts that this rank reduces, one per rank
  Bytes reduction_scratch = {};    // of `reduction`
  std::unique_ptr<HostCall> host;  // if the data cross the network once per host
  // If a reduction moves between members. Not dropped before this object: another thread may wait
  // for one of its words.
  std::unique_ptr<Exchange> reduction;

  [[nodiscard]] std::byte* scratch_of(int rank) {
    const auto bytes = exchange::owned_by(call, group->rank(), group->size()).length;
    return scratch.data() + static_cast<std::size_t>(rank) * bytes;
  }
  /// `last`: no other rank awaits what follows.
  [[nodiscard]] Awaited reaches(const Word& word, std::uint64_t target, int peer,
                                bool last = false) const noexcept {
    return {.counters = &group->counters(),
            .word = &word,
            .target = target,
            .peer = peer,
            .last = last};
  }
  void send_to(int to, std::uint32_t part, std::uint64_t offset, std::span<const std::byte> bytes);
  /// What this rank needs of the input that `from` has sent with the call. Throws PeerError if its
  /// length is not that of an equal call.
  [[nodiscard]] std::span<const std::byte> input_of(int from) const;
};

class NetworkMessageOperation final : public MessageOperation {
 public:
  explicit NetworkMessageOperation(std::shared_ptr<NetworkGroup> group_of_message)
      : group(std::move(group_of_message)) {}
  ~NetworkMessageOperation() override;

  std::shared_ptr<NetworkGroup> group;
  Network::Word moved = 0;                // bytes sent or received
  std::optional<std::uint64_t> transfer;  // the number of its transfer, if it has one
};

class NetworkDataPlane final : public DataPlane {
 public:
  NetworkDataPlane(std::shared_ptr<NetworkGroup> group, std::string kind,
                   const NetworkPlaneOptions& options, std::optional<HostPlanes> host);

  [[nodiscard]] std::string kind() const override { return kind_; }
  [[nodiscard]] std::string settings() const override;
  [[nodiscard]] std::optional<std::string> refusal_of(const Device& device) const override;
  void tune(Group& group) override;

  [[nodiscard]] std::shared_ptr<CallOperation> prepare(const Call& call,
                                                       std::uint64_t number) override;
  [[nodiscard]] Recipe begin(CallOperation& operation, bool same_memory) override;
  void look_ahead(CallOperation& /*oldest*/) noexcept override {}
  void retire(CallOperation& operation, bool is_last) noexcept override;
  [[nodiscard]] std::shared_ptr<MessageOperation> send(const Message& message,
                                                       std::span<const std::byte> bytes) override;
  [[nodiscard]] std::shared_ptr<MessageOperation> receive(const Message& message,
                                                          std::span<std::byte> bytes) override;
  [[nodiscard]] std::shared_ptr<RegisteredMemory> allocate(std::size_t bytes, const Device& device,
                                                           Deadline deadline,
                                                           const Watch& watch) override;
  /// Operations may be destroyed from here on.
  void give_up() noexcept override { group_->forget_all(); }
  void cut_off() override { group_->forget_all(); }

 private:
  // Messages to one rank are offered in the order of their start.
  struct Sends {
    std::uint64_t begun = 0;
    Network::Word offered = 0;
  };
  // Receives of one tag match offers in the order of their start.
  struct Turns {
    std::uint64_t begun = 0;
    Network::Word matched = 0;
  };

  [[nodiscard]] int rank() const noexcept { return group_->rank(); }
  [[nodiscard]] int size() const noexcept { return group_->size(); }
  // How `call` is reduced among its members, and among the ranks of a rail (HostPlan::has_rails).
  [[nodiscard]] ExchangeAlgorithm algorithm_of(const Call& call,
                                               const ExchangeSize& size) const noexcept;
  [[nodiscard]] ExchangeAlgorithm algorithm_of_rails(const Call& call,
                                                     std::size_t bytes) const noexcept;
  void expect_data(NetworkCall& call);
  static Recipe deliver(NetworkMessageOperation& operation, std::span<const std::byte> bytes,
                        std::uint64_t number, std::shared_ptr<Sends> sends);
  static Recipe collect(NetworkMessageOperation& operation, std::span<std::byte> bytes,
                        std::uint64_t turn, std::shared_ptr<Turns> turns);

  std::shared_ptr<NetworkGroup> group_;
  std::string kind_;
  NetworkPlaneOptions options_;
  std::shared_ptr<HostMemory> host_;                             // may be null
  std::vector<std::shared_ptr<Sends>> sends_;                    // by rank
  std::map<std::pair<int, int>, std::shared_ptr<Turns>> turns_;  // by rank and tag
};

/// Computes an inline call that all ranks have entered.
void run_inline(NetworkCall& call);
/// Moves the data of a call that has a `reduction`.
[[nodiscard]] Recipe move_reduction(NetworkCall& call);
/// Moves the data of any other call.
[[nodiscard]] Recipe move_data(NetworkCall& call);

// A call whose elements have owners (network_owners.cpp).

/// Expects its data; called before this rank enters the call.
void expect_by_owners(NetworkCall& call);
/// Computes it inline, when all ranks have entered it.
void run_inline_by_owners(NetworkCall& call);
/// Moves its data.
[[nodiscard]] Recipe move_by_owners(NetworkCall& call);

}  // namespace lockstep
