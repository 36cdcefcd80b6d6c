// A group of ranks and its collectives on tensors:
//
//   lockstep::ProcessGroup group(world);
//   group.all_reduce(gradient, lockstep::ReduceOp::average).wait();
//
// Groups on one host support CPU and CUDA tensors, which may alternate; groups on several hosts
// support CPU tensors. A rank uses one GPU per group. Calls on CUDA tensors do not wait for the
// device: they are enqueued, in the order of LibTorch's current stream, and Work::wait() makes the
// current stream wait. The first one connects the GPUs and waits for the other ranks.
//
// Every function that returns Work is collective, except send and receive: every rank of the group
// calls it, in the same order, with the same number of elements, dtype, op, root and name; the
// weight may differ. It returns at once; do not access the tensors until the Work has been waited
// on. Several threads may use a group.
//
// If ranks issue different collectives, or a peer dies or times out, the call or wait() throws
// PeerError naming the rank. The group is then unusable. Other groups stay usable. A new group of
// the world needs all of its ranks: after a rank has ended, restart the job. A rank leaves a group
// when the last copy of its ProcessGroup is destroyed; a Work or a Ddp holds a copy.
//
// All ranks get bit-identical results, whatever the size of a tensor and the memory that it is in
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
#include "lockstep/base/owners.h"
#include "lockstep/collectives/shared_region.h"
#include "lockstep/collectives/work.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {

enum class Collective : std::uint8_t;  // fabric/call.h
struct NetworkLink;                    // rendezvous/network_link.h
class RankPage;                        // trace/rank_page.h
class World;                           // rendezvous/world.h

/// The backend that moves the data of a group.
enum class Backend : std::uint8_t {
  automatic,     // chosen by the hosts of the ranks, and by their GPUs at the first CUDA tensor
  shm,           // shared memory, for ranks of one host; CPU tensors only
  tcp,           // TCP, for ranks on several hosts; CPU tensors only
  hierarchical,  // shm inside each host and tcp between them; CPU tensors only
  mpi,           // MPI, in a world of init(MPI_Comm) (mpi/init.h); CPU tensors only
  // For CUDA tensors of ranks on one host; CPU tensors of the group use shm.
  ipc,     // the ranks map each other's GPU memory, for ranks that share one GPU
  staged,  // through pinned memory of the host
  nccl,    // NCCL, for ranks with one GPU each
};

/// How floating point is added. exact: in a fixed tree, bit-identical for all backends. fast: the
/// bits depend on the number of ranks; backend nccl adds in an order of NCCL's choice, the backends
/// between hosts in a ring (docs/collectives.md states when that is faster). shm, ipc and staged
/// are exact with both.
enum class Sums : std::uint8_t { exact, fast };

struct ProcessGroupOptions {
  std::string name = "world";                      // for messages
  std::chrono::milliseconds timeout{600'000};      // long, because a rank may be evaluating
  std::chrono::milliseconds stall_report{10'000};  // a longer wait is reported once
  Backend backend = Backend::automatic;
  Sums sums = Sums::exact;
};

/// Optional arguments of a call.
struct CallOptions {
  std::string_view name = {};               // for messages: "gradients 3"; equal on all ranks
  std::optional<CallFlags> flags = {};      // combined over the ranks: Work::flags()
  std::optional<std::int64_t> weight = {};  // of this rank, for ReduceOp::weighted_average
  // A reduction adds its leaves in a fixed binary tree (kernels/leaf_tree.h). These are the leaves
  // whose reduced subtree is this rank's input; nullopt: each rank is one leaf.
  std::optional<LeafInterval> leaves = {};
};

/// A value that is cheap to copy; copies refer to the same group. A process can have several
/// groups.
class ProcessGroup {
 public:
  /// Creates the group of all ranks of `world`. Collective: every rank of the world calls this, in
  /// the same order as for its other groups. Returns when every rank is present. Throws UsageError
  /// if the requested backend does not connect the hosts of the ranks, naming them; PeerError when
  /// a rank has ended or does not arrive within `timeout`.
  explicit ProcessGroup(const World& world, const ProcessGroupOptions& options = {});

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int size() const noexcept;
  /// The rank in the world of rank `rank` of this group. Throws UsageError for an invalid rank.
  [[nodiscard]] int global_rank(int rank) const;
  /// The name of the backend for tensors on `device`: "shm"; and why it was chosen: "all 4 ranks
  /// are on one host". Both are empty for CUDA before the first call on it, and for a group of one
  /// rank without a requested backend, which moves no data.
  [[nodiscard]] std::string backend(at::Device device = at::kCPU) const;
  [[nodiscard]] std::string backend_reason(at::Device device = at::kCPU) const;
  /// The link between the hosts of the ranks, measured or assumed; nullopt for ranks of one host.
  [[nodiscard]] std::optional<NetworkLink> link() const;
  /// The page of this rank, as World::page().
  [[nodiscard]] RankPage& page() const noexcept;
  /// Throws UsageError, naming `what`, if the backend does not support memory on `device`.
  void expect_usable(at::Device device, std::string_view what) const;

  /// Creates the group of the ranks that pass the same `color`, ordered by key, then by rank; a
  /// rank that passes a color of its own is alone in its group. Collective over this group. Returns
  /// when every rank of the new group is present. Throws as the constructor.
  [[nodiscard]] ProcessGroup split(int color, int key = 0) const;

  /// Returns a copy that marks this group as reserved for as long as the copy, or a copy of it,
  /// exists. It is only a mark and forbids no call. Not collective. The calls of a group have one
  /// order, so two users whose calls have no fixed order relative to each other need one group
  /// each: the second user finds is_reserved() and calls split().
  [[nodiscard]] ProcessGroup reserve() const;
  [[nodiscard]] bool is_reserved() const noexcept;

  /// Allocates `bytes` of registered memory: a zeroed uint8 tensor in memory that all ranks of the
  /// host have mapped, where the backend can map it. Collectives on it, and on views of it, need no
  /// copy. Collective: every rank passes the same size. Returns when every rank has its memory. The
  /// memory exists as long as a tensor uses it, also beyond the group. Throws UsageError for a
  /// device that the backend does not support, PeerError.
  [[nodiscard]] at::Tensor allocate(std::int64_t bytes, at::Device device = at::kCPU) const;

  /// Allocates `bytes` of CPU memory once for all ranks, which are on one host. Collective: every
  /// rank passes the same size. Throws UsageError for ranks of several hosts, PeerError.
  [[nodiscard]] SharedRegion allocate_shared(std::int64_t bytes) const;

  // All functions below throw UsageError for an unsupported dtype or device, a tensor that is not
  // contiguous, and sizes that do not match; PeerError when a rank is lost. In-place use is noted
  // where it is supported.

  /// Reduces `tensor` across all ranks, in place. Throws UsageError for an average of integers.
  [[nodiscard]] Work all_reduce(at::Tensor& tensor, ReduceOp op = ReduceOp::sum,
                                const CallOptions& options = {}) const;
  /// The same for each tensor of a list, which has the same length on all ranks. One Work for all.
  [[nodiscard]] Work all_reduce(at::TensorList tensors, ReduceOp op = ReduceOp::sum,
                                const CallOptions& options = {}) const;

  /// Reduces `input`, which is size() times as long as `output`, across all ranks; rank r receives
  /// part r of the result. `output` may be this rank's part of `input`.
  [[nodiscard]] Work reduce_scatter(at::Tensor& output, const at::Tensor& input,
                                    ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {}) const;
  [[nodiscard]] Work reduce_scatter(at::TensorList outputs, at::TensorList inputs,
                                    ReduceOp op = ReduceOp::sum,
                                    const CallOptions& options = {}) const;

  /// Concatenates the `input` of every rank in `output`, on all ranks. `input` may be this rank's
  /// part of `output`.
  [[nodiscard]] Work all_gather(at::Tensor& output, const at::Tensor& input,
                                const CallOptions& options = {}) const;
  [[nodiscard]] Work all_gather(at::TensorList outputs, at::TensorList inputs,
                                const CallOptions& options = {}) const;

  /// Copies root's `tensor` to all ranks.
  [[nodiscard]] Work broadcast(at::Tensor& tensor, int root = 0,
                               const CallOptions& options = {}) const;
  [[nodiscard]] Work broadcast(at::TensorList tensors, int root = 0,
                               const CallOptions& options = {}) const;

  /// As all_reduce, but only the `tensor` of `root` receives the result; the others are unchanged.
  [[nodiscard]] Work reduce(at::Tensor& tensor, int root = 0, ReduceOp op = ReduceOp::sum,
                            const CallOptions& options = {}) const;

  /// As all_gather, but only `root` receives the result. On other ranks `output` is ignored and may
  /// be undefined.
  [[nodiscard]] Work gather(at::Tensor& output, const at::Tensor& input, int root = 0,
                            const CallOptions& options = {}) const;
  /// Copies part r of root's `input` to the `output` of rank r. On other ranks `input` is ignored
  /// and may be undefined.
  [[nodiscard]] Work scatter(at::Tensor& output, const at::Tensor& input, int root = 0,
                             const CallOptions& options = {}) const;
  /// Copies part p of the `input` of rank r to part r of the `output` of rank p, for all r and p.
  [[nodiscard]] Work all_to_all(at::Tensor& output, const at::Tensor& input,
                                const CallOptions& options = {}) const;

  // Collectives on a range whose elements have owners (base/owners.h): uneven shards, in place,
  // several ranges per rank; a rank may own nothing. Every rank passes equal owners, which are kept
  // until the Work is done. Both throw UsageError for owners of another number of elements or
  // ranks.

  /// Reduces `range` as all_reduce does, bit-identical to it; each rank receives the elements that
  /// it owns. Its other elements are unchanged.
  [[nodiscard]] Work reduce_to_owners(at::Tensor& range, std::shared_ptr<const Owners> owners,
                                      ReduceOp op = ReduceOp::sum,
                                      const CallOptions& options = {}) const;
  /// Copies each element from its owner to all ranks.
  [[nodiscard]] Work gather_from_owners(at::Tensor& range, std::shared_ptr<const Owners> owners,
                                        const CallOptions& options = {}) const;

  /// Returns Work that is done when every rank has called barrier().
  [[nodiscard]] Work barrier(const CallOptions& options = {}) const;

  /// Sends `tensor` to rank `to`, which calls receive() with the same dtype, number of elements and
  /// tag. Messages with the same tag arrive in order. A send is done when the receiver has the
  /// data: two ranks that both wait for a send before they call receive() wait until the timeout.
  /// Up to sixteen messages from one rank to another may wait for their receive(); later ones are
  /// received only after one of these.
  [[nodiscard]] Work send(const at::Tensor& tensor, int to, int tag = 0) const;
  [[nodiscard]] Work receive(at::Tensor& tensor, int from, int tag = 0) const;

 private:
  explicit ProcessGroup(std::shared_ptr<Group> group);

  struct Shared;
  friend class CapturedCalls;
  friend class PeerCalls;

  [[nodiscard]] Work start_by_owners(Collective kind, at::Tensor& range,
                                     std::shared_ptr<const Owners> owners, ReduceOp op,
                                     const CallOptions& options) const;
  // The owners with this digest, if this rank has passed them to a call and still has them.
  [[nodiscard]] std::shared_ptr<const Owners> find_owners(std::uint64_t digest) const;

  std::shared_ptr<Group> group_;
  std::shared_ptr<Shared> shared_;        // by all copies
  std::shared_ptr<const void> reserved_;  // set in copies that reserve the group
};

}  // namespace lockstep
