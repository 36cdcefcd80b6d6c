// Data-parallel training of any LibTorch module: every rank has the model and a part of the batch,
// and after backward() all ranks have the same averaged gradients.
//
//   lockstep::ProcessGroup group(world);
//   lockstep::Ddp ddp(*net, group);
//   for (auto& batch : loader.epoch()) {
//     auto loss = loss_of(net->forward(batch.input()), batch.target());
//     loss.backward();                    // returns with averaged gradients
//     optimizer.step();
//     optimizer.zero_grad();
//   }
//
// Loop, module and optimizer stay the user's own. backward() is collective: every rank runs the
// same number of them, or calls sit_out() where it has no batch, or one that uses no parameter. A
// backward that ends by an exception takes its whole step with it, earlier micro-batches too, on
// all ranks: the others get PeerError that names the rank. Call zero_grad() on all ranks and
// continue. One graph may hold several such models; each Ddp has a group of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/bucket_plan.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/trace/sink.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// What averaged gradients are.
enum class Normalize {
  by_rank,   // the mean over the ranks that took part: for losses that are means over equal batches
  by_count,  // the sum over all ranks, divided by what they count(): for losses that are sums
};

/// When buffers (running statistics) are copied from the lowest rank that took part to all.
enum class BufferSync { each_step, once, never };

constexpr std::size_t kAutotune = 0;

struct DdpOptions {
  std::size_t bucket_bytes =
      kDefaultBucketBytes;  // one all-reduce moves about this much; kAutotune; kOneBucket
  Normalize normalize = Normalize::by_rank;
  // Every so many backwards are averaged, together: gradients are the mean over micro-batches too.
  int accumulate = 1;
  BufferSync buffers = BufferSync::each_step;
  int gradient_buffers = 1;    // 2: backward() under no_sync() may run between start() and wait()
  TraceSink* trace = nullptr;  // gets a span a bucket; outlives the Ddp
};

class [[nodiscard]] Ddp {
 public:
  /// While it lives, backward() leaves gradients where they are; they are averaged in the first
  /// backward() after it.
  class NoSync {
   public:
    explicit NoSync(Ddp& ddp);
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync();

   private:
    Ddp& ddp_;
  };

  /// A reduction under way.
  class Sync {
   public:
    explicit Sync(Ddp& ddp) : ddp_(&ddp) {}
    /// Returns when gradients are averaged; `.grad` is these then, until the next backward() or
    /// start(), whatever came meanwhile. Throws PeerError; UsageError in the middle of a backward.
    void wait();

   private:
    Ddp* ddp_;
  };

  /// Moves the parameters of `module` into registered memory (flat_parameters.h) and gives all ranks
  /// those of rank 0, and its buffers.
  /// Collective: every rank calls this with an equal model and equal options. The Ddp lives as long
  /// as the loop: keep it in a variable. Parameters stay where they are now. A `module` that no
  /// shared_ptr holds outlives the Ddp.
  /// Throws PeerError that names the parameter or option where ranks differ, UsageError for invalid
  /// options and models.
  [[nodiscard]] Ddp(torch::nn::Module& module, const ProcessGroup& group,
                    const DdpOptions& options = {});
  Ddp(const Ddp&) = delete;
  Ddp& operator=(const Ddp&) = delete;
  /// Logs steps with gradients that were never averaged, and parameters that left or were added.
  /// If it has reduced nothing, the first gradient that comes after it is logged: a Ddp without a
  /// name would be gone before the loop.
  ~Ddp();

  /// Accumulation: `{ auto pause = ddp.no_sync(); loss.backward(); }`. The scope covers backward();
  /// the loss is divided by the number of micro-batches, or counted.
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Says, before backward(), how many samples or tokens its loss is a sum of. Adds up over
  /// micro-batches. Throws UsageError unless normalised by count, and during a backward.
  void count(std::int64_t samples);

  /// Takes part without a batch, in place of forward and backward, with weight zero. Throws
  /// UsageError after count(), and in the middle of a backward or a reduction; PeerError.
  void sit_out();

  /// Whether gradients are averaged and there is something to step with: false after a backward
  /// that only accumulates, when no rank brought a sample, and once `.grad` is undefined again. So
  /// it is false on a rank whose backward touched no parameter; else equal on all ranks.
  [[nodiscard]] bool should_step() const noexcept;
  /// Whether any rank had a non-finite gradient in the last reduction, or a sum of finite ones
  /// overflowed; equal on all ranks. Ask before `.grad` is changed. Looks at all averaged gradients
  /// the first time it is asked after a reduction; the first non-finite gradient of a rank is
  /// logged without being asked.
  [[nodiscard]] bool non_finite() const noexcept;
  /// Those parameters that had one on this rank.
  [[nodiscard]] std::vector<std::string> non_finite_parameters() const;

  /// Averages now what backward() under no_sync() has left, and gradients that were assigned by
  /// hand, while the caller goes on. Collective. Leave gradients alone until it is waited on. With
  /// a second gradient buffer the next backward() may run meanwhile, under no_sync(): its gradients
  /// wait for the start() after that.
  [[nodiscard]] Sync start();

  /// Copies buffers from rank `root` of the group to all. Collective.
  void sync_buffers(int root = 0);

  /// Takes back parameters that left registered memory, and gives all ranks rank 0's. Collective.
  void adopt();
  /// Goes on in another group: after a failure, with fewer or other ranks. Collective among its
  /// ranks, which get its rank 0's parameters and buffers.
  void rebind(const ProcessGroup& group);

  [[nodiscard]] FlatParameters& flat() noexcept;
  [[nodiscard]] const BucketPlan& plan() const noexcept;
  /// Of the last reduction.
  [[nodiscard]] const StepRecord& record() const noexcept;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
