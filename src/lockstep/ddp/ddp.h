// Data-parallel training of any LibTorch module, as torch's DistributedDataParallel: every rank has
// a replica of the model and a shard of the batch, and after backward() all ranks have the same
// averaged gradients. Parameters are on the CPU or on a GPU (docs/gpu.md). On a GPU backward() does
// not wait for the device: the caller's current stream sees the averages.
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
// The module is not wrapped; loop and optimizer are the user's own.
//
// backward() is collective: every rank runs the same number of them. A rank that has no batch, or
// whose loss uses no parameter, calls sit_out() instead. If backward() throws on a rank, the step
// is lost on all ranks, including earlier micro-batches: make no optimizer step, and continue with
// the next one, whose backward() discards what is left. The other ranks get PeerError that names
// the rank. If a rank has died, restart the job.
//
// One graph may contain several Ddp modules: the first Ddp uses `group` itself, each further one a
// new group of the same ranks. The program may use `group` too, between backwards and between
// start() and wait(), at the same place on every rank; not in hooks that run during a backward().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/bucket_plan.h"
#include "lockstep/ddp/gradient_hook.h"
#include "lockstep/ddp/step_record.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/trace/trace.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

/// How gradients are averaged.
enum class Normalize {
  // Mean over the ranks that had a batch; for a loss that is a mean over equal batches. The weight
  // of a rank is 1; with `accumulate` > 1 the number of micro-batches in which it had a batch; 0 if
  // it sat out the whole step.
  by_rank,
  by_count,  // sum over all ranks divided by the sum of count(); for a loss that is a sum
};

/// When module.buffers(), such as running statistics, are copied to all ranks.
enum class BufferSync {
  each_step,  // as once, and at the end of each reduction (not before forward), from the lowest
              // rank that had a batch; not running statistics under sync_batch_norm
  once,       // at construction and in adopt() and rebind(), from rank 0
  never       // only by sync_buffers()
};

constexpr std::size_t kAutotune = 0;

struct DdpOptions {
  // About this many bytes of gradients per all-reduce. 25 MiB, the default, means between hosts: a
  // size that suits the link. kAutotune measures a size, kOneBucket reduces all at once.
  std::size_t bucket_bytes = kDefaultBucketBytes;
  Normalize normalize = Normalize::by_rank;
  // Micro-batches per step: gradients are reduced in every N-th backward() and are the mean over
  // these micro-batches too.
  int accumulate = 1;
  BufferSync buffers = BufferSync::each_step;
  int gradient_buffers = 1;  // 2: backward() under no_sync() may run between start() and wait()
  // ZeRO: the ranks divide the optimizer's work and state (docs/sharding.md). After backward()
  // `.grad` is undefined, and flat() has this rank's shards of the averages: use lockstep's
  // optimizers, clip_grad_norm and GradScaler on flat(), or flat().owned(). These calls, and
  // non_finite(), then are collective. The results are the same, bit for bit.
  Shard shard = Shard::none;
  // With Shard::gradients and `accumulate`: reduces every micro-batch and adds the averages, so
  // that no rank keeps whole gradients between micro-batches. The sums have another order, and
  // other last bits; every backward() is collective. Gradients of no_sync() are kept whole.
  bool reduce_each_micro_batch = false;
  // With shards: one copy of the parameters for all ranks of a host, instead of one per rank.
  // Change parameters only by write_parameters() then.
  Copies copies = Copies::per_rank;
  // SyncBatchNorm: in training the BatchNorm layers of the model use the statistics of the batches
  // of all ranks, also under no_sync(). The model does not change. It works on the thread that
  // makes the Ddp, while the Ddp lives; every rank runs the same layers in the same order
  // (docs/uneven.md).
  bool sync_batch_norm = false;
  // Receives the times of every bucket; must outlive the Ddp. Null: that of LOCKSTEP_PROFILE, if it
  // is set.
  Trace* trace = nullptr;
};

class [[nodiscard]] Ddp {
 public:
  /// A scope in which backward() and sit_out() only accumulate. The reduction that ends the step
  /// averages these gradients: the last backward() or sit_out() of the step, outside of the scope,
  /// or start(). They count as micro-batches of DdpOptions::accumulate. Scopes may be nested.
  class NoSync {
   public:
    explicit NoSync(Ddp& ddp);
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync();

   private:
    Ddp& ddp_;
  };

  /// A reduction that start() has begun. If it is destroyed without wait(), the reduction stays
  /// open, and the next start() throws UsageError.
  class Sync {
   public:
    explicit Sync(Ddp& ddp) : ddp_(&ddp) {}
    /// Waits for the reduction.
    /// Returns when `.grad` of every parameter is the average, or with shards, flat() has it; it
    /// stays so until the next backward() or start(), also if another backward() ran meanwhile.
    /// Throws PeerError when a rank is lost or failed, UsageError during a backward().
    void wait();

   private:
    Ddp* ddp_;
  };

  /// Moves the parameters of `module` to registered memory (flat_parameters.h), where they stay,
  /// and copies rank 0's parameters to all ranks, and its buffers unless DdpOptions::buffers is
  /// never.
  /// Collective: every rank of `group` calls this, with equal options and a model of equal
  /// structure (names, shapes, dtypes, strides, requires_grad); seeds may differ. Keep the
  /// Ddp in a variable for as long as the loop runs. If no shared_ptr holds `module`, it must
  /// outlive the Ddp.
  /// Throws PeerError that names the parameter or option that differs and the rank, UsageError for
  /// invalid options or an unsupported model.
  [[nodiscard]] Ddp(torch::nn::Module& module, const ProcessGroup& group,
                    const DdpOptions& options = {});
  Ddp(const Ddp&) = delete;
  Ddp& operator=(const Ddp&) = delete;
  /// Logs a warning if an optimizer used gradients that were never averaged, and if parameters were
  /// moved or added. If no backward() outside no_sync(), sit_out() or start() has run, a warning
  /// follows at the next gradient: the Ddp was probably a temporary, destroyed before the loop.
  ~Ddp();

  /// Averages gradients with `hook` instead of one all-reduce per bucket (gradient_hook.h,
  /// docs/compression.md). It stays set in adopt() and rebind().
  /// Collective: every rank calls this, once, before its first backward(), sit_out() and start(),
  /// with the same hook.
  /// Throws UsageError after a backward() or a set_hook(); PeerError, naming the rank, if its hook
  /// has another name or form.
  void set_hook(GradientHook hook);

  /// Gradient accumulation: `{ auto scope = ddp.no_sync(); loss.backward(); }`. The scope must
  /// cover backward(). Divide the loss by the number of micro-batches, or use count().
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Sets this micro-batch's weight: the number of samples (or tokens) summed in the loss. Call it
  /// before backward(). The weights of a step's micro-batches are added. count(0) is valid: the
  /// gradients are added to the sum, and the divisor does not change.
  /// Throws UsageError unless DdpOptions::normalize is by_count, for a negative number, during a
  /// backward(), and with one gradient buffer also between start() and wait().
  void count(std::int64_t samples);

  /// Takes part in one micro-batch without a batch, with weight 0, in place of forward and
  /// backward(). Calls that other ranks make in forward and backward are made here too, with a
  /// neutral contribution: those of sync_batch_norm, and the program's own in the group of the Ddp.
  /// Under no_sync() they are made only if sync_batch_norm is set.
  /// Returns when all ranks have ended the micro-batch, and when the reduction is done, if it ends
  /// the step.
  /// Throws UsageError after count() and during a backward() or a reduction, and, naming the call,
  /// when other ranks make one that needs data of this rank; PeerError as backward() does.
  void sit_out();
  /// The number of ranks that sat out the whole step of the last reduction: equal on all ranks,
  /// without communication. A loop that ends on all ranks when it is not 0 uses no rank's data
  /// longer than the others'.
  [[nodiscard]] int num_sitting_out() const;

  /// Whether `.grad`, or with shards flat(), holds averaged gradients for the optimizer. False
  /// after a backward() that only accumulates, when no rank had a sample, and after zero_grad().
  /// Equal on all ranks, except that it is false on a rank whose backward() reached no parameter,
  /// without shards.
  [[nodiscard]] bool should_step() const;
  /// Whether the averaged gradients of the last reduction have a non-finite value: a rank's
  /// gradient had one, or a sum overflowed. Equal on all ranks, without communication; with shards
  /// collective: every rank calls this. Call it before `.grad` is changed and before step().
  /// The first call after a reduction reads all averaged gradients, and waits for the device if
  /// they are on a GPU. The first non-finite gradient of a rank is also logged: after the
  /// reduction, or by this function if it is on a GPU.
  [[nodiscard]] bool non_finite() const;
  /// The parameters whose gradient was non-finite on this rank. Waits for the device if they are on
  /// a GPU.
  [[nodiscard]] std::vector<std::string> non_finite_parameters() const;

  /// Begins to average the gradients that backward() under no_sync() accumulated, and those that
  /// were assigned to `.grad` directly.
  /// Collective: every rank calls this.
  /// Returns at once; do not touch gradients until the Sync has been waited on. With two gradient
  /// buffers the next backward() under no_sync() may run meanwhile; its gradients are averaged by
  /// the next start().
  /// Throws UsageError during a backward() or a reduction.
  [[nodiscard]] Sync start();

  /// Copies module.buffers() of rank `root` of the group to all ranks.
  /// Collective: every rank calls this. Returns when they are copied; throws PeerError.
  void sync_buffers(int root = 0);

  /// Moves parameters that left registered memory back, and copies rank 0's parameters to all
  /// ranks, and its buffers unless DdpOptions::buffers is never. Gradients of a step that was not
  /// reduced yet are discarded by the next backward().
  /// Collective: every rank calls this.
  /// Throws as FlatParameters::adopt().
  void adopt();
  /// Continues in `group`, which the program has made and which has no failed rank: one of an
  /// earlier split(), or of a new world. After a rank has died, ProcessGroup(world) fails, because
  /// it needs all ranks of the world. Copies the parameters of rank 0 of `group` to all its ranks,
  /// and its buffers unless DdpOptions::buffers is never. The next backward() begins a new step:
  /// gradients that are left are discarded.
  /// Collective: every rank of `group` calls this.
  /// Throws as the constructor.
  void rebind(const ProcessGroup& group);

  /// Rank 0 of the group calls `write`, which may change parameters in place; all ranks get the
  /// result. For initial values, loaded values and limits on values, where ranks share one copy.
  /// Collective: every rank calls this, between steps. Returns when all ranks have the result.
  /// Throws what `write` throws on rank 0, PeerError on the others; UsageError during a backward(),
  /// and with Copies::per_host if the program has changed parameters in another way before.
  void write_parameters(const std::function<void()>& write);

  [[nodiscard]] FlatParameters& flat() noexcept;
  [[nodiscard]] const BucketPlan& plan() const;
  /// Times of the last reduction.
  [[nodiscard]] const StepRecord& record() const;

 private:
  struct State;

  /// The state; first waits until a backward() that has thrown is over on all threads.
  [[nodiscard]] State& settled() const;

  std::unique_ptr<State> state_;
};

}  // namespace lockstep
