// The ranks that work together, and what they do with tensors:
//
//   lockstep::ProcessGroup group(world);
//   group.all_reduce(gradient, lockstep::ReduceOp::average).wait();
//
// Every verb but send and receive is collective: every rank of the group calls it, in the same
// order, with the same shape, dtype and arguments. It returns at once with Work; leave the tensors
// alone until that is waited on. Ranks that make different calls, are lost or late get PeerError
// that says who and what, from the verb or the wait; the group is of no more use then, the process
// is. Results have the same bits on every rank, whatever the size and wherever tensors lie
// (docs/numerics.md).
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/call_flags.h"
#include "lockstep/collectives/work.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

class World;  // rendezvous/world.h

/// What moves the data of a group.
enum class Backend : std::uint8_t {
  automatic,  // chosen by where the ranks run
  shm,        // memory that the ranks of one host share
};

struct ProcessGroupOptions {
  std::string name = "world";                      // in messages
  std::chrono::milliseconds timeout{600'000};      // a rank may be evaluating
  std::chrono::milliseconds stall_report{10'000};  // a wait that takes longer is reported, once
  Backend backend = Backend::automatic;
};

/// What a call may carry besides its tensors.
struct CallOptions {
  std::string_view name = {};               // for messages: "gradients 3"; ranks give the same
  std::optional<CallFlags> flags = {};      // combined over the ranks: Work::flags
  std::optional<std::int64_t> weight = {};  // of this rank, for ReduceOp::weighted_average
  std::optional<LeafInterval> leaves = {};  // of a reduction; none: each rank is one leaf
};

/// A value, cheap to copy; copies are the same group. Several can live in one process.
class ProcessGroup {
 public:
  /// All ranks of `world`. Collective. Returns when all have come.
  /// Throws UsageError when they are on several hosts, naming those; PeerError for ranks that are
  /// lost or late.
  explicit ProcessGroup(const World& world, const ProcessGroupOptions& options = {});

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// The number that `rank` of this group has in the world. Throws UsageError when there is none.
  [[nodiscard]] int global_rank(int rank) const;
  /// What moves the data: "shm". And why: "all 4 ranks are on one host".
  [[nodiscard]] std::string backend() const;
  [[nodiscard]] std::string backend_reason() const;
  /// Throws UsageError, naming `what`, when the backend cannot use memory of `device`.
  void expect_usable(at::Device device, std::string_view what) const;

  /// The group of the ranks that give the same `color`, ordered by key, then by rank. Collective. A
  /// rank that wants none of the others gives a color of its own.
  [[nodiscard]] ProcessGroup split(int color, int key = 0) const;

  /// A copy of this group that keeps it reserved as long as the copy, or a copy of that, lives. Not
  /// collective. Calls of a group have one order, so two users that begin calls at different
  /// moments on different ranks need a group each: the second one finds is_reserved() and calls
  /// split().
  [[nodiscard]] ProcessGroup reserve() const;
  [[nodiscard]] bool is_reserved() const noexcept;

  /// `bytes` of zeroed memory as a tensor of uint8, mapped by every rank of the host: collectives
  /// on it, and on views of it, copy nothing. Collective, with the same size. It lives as long as
  /// any tensor uses it, longer than the group if need be. Throws UsageError for a device that the
  /// backend does not serve.
  [[nodiscard]] at::Tensor allocate(std::int64_t bytes, at::Device device = at::kCPU) const;

  /// Joins `tensor` over the ranks, in place. Throws UsageError for a dtype the group does not
  /// know, and for the average of integers.
  [[nodiscard]] Work all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                                const CallOptions& options = {}) const;
  /// The same for each of a list, which has the same length on all ranks. One Work for all.
  [[nodiscard]] Work all_reduce(at::TensorList tensors, ReduceOp op = ReduceOp::sum,
                                const CallOptions& options = {}) const;

  /// Joins `input`, size() times as long as `output`, and leaves each rank its part of the result:
  /// rank r the r-th. `output` may be that part of `input`.
  [[nodiscard]] Work reduce_scatter(at::Tensor& output, const at::Tensor& input,
                                    ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {}) const;
  [[nodiscard]] Work reduce_scatter(at::TensorList outputs, at::TensorList inputs,
                                    ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {}) const;

  /// Puts every rank's `input` one after the other into `output`, on all ranks. `input` may be this
  /// rank's part of `output`.
  [[nodiscard]] Work all_gather(at::Tensor& output, const at::Tensor& input,
                                const CallOptions& options = {}) const;
  [[nodiscard]] Work all_gather(at::TensorList outputs, at::TensorList inputs,
                                const CallOptions& options = {}) const;

  /// Copies root's `tensor` to all ranks.
  [[nodiscard]] Work broadcast(at::Tensor& tensor, int root = 0,
                               const CallOptions& options = {}) const;
  [[nodiscard]] Work broadcast(at::TensorList tensors, int root = 0,
                               const CallOptions& options = {}) const;

  /// As all_reduce, but only root's `tensor` gets the result; the others keep theirs.
  [[nodiscard]] Work reduce(at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum,
                            const CallOptions& options = {}) const;

  /// As all_gather, to root alone; elsewhere `output` is not looked at and may be undefined.
  [[nodiscard]] Work gather(at::Tensor& output, const at::Tensor& input, int root = 0,
                            const CallOptions& options = {}) const;
  /// Gives rank r the r-th part of root's `input`; elsewhere `input` may be undefined.
  [[nodiscard]] Work scatter(at::Tensor& output, const at::Tensor& input, int root = 0,
                             const CallOptions& options = {}) const;
  /// Part p of this rank's `input` becomes part r of rank p's `output`, r being this rank.
  [[nodiscard]] Work all_to_all(at::Tensor& output, const at::Tensor& input,
                                const CallOptions& options = {}) const;

  /// Returns Work that is done when every rank has come.
  [[nodiscard]] Work barrier(const CallOptions& options = {}) const;

  /// Sends `tensor` to one rank, which receives one of the same dtype and number of elements with
  /// the same tag. Messages with one tag arrive in order. Done when the receiver has it.
  [[nodiscard]] Work send(const at::Tensor& tensor, int to, int tag = 0) const;
  [[nodiscard]] Work receive(at::Tensor& tensor, int from, int tag = 0) const;

 private:
  explicit ProcessGroup(std::shared_ptr<Group> group);

  struct Reservation;

  std::shared_ptr<Group> group_;
  std::shared_ptr<Reservation> reservation_;  // of all copies
  std::shared_ptr<const void> reserved_;      // of a copy that reserves it
};

}  // namespace lockstep
