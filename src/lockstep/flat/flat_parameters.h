// A model's parameters and gradients in registered memory: one contiguous stretch of each per dtype
// and device, mapped by every rank of the host, as FSDP's FlatParameter. The module's tensors keep
// their identity; only their storage moves here, once, in the constructor. Reductions, optimizers
// and checkpoints work on ranges of it. layout.h defines where each parameter lies. The ranks may
// divide the work of the optimizer among them (FlatOptions::shard): shards.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/flat/gradient_slot.h"
#include "lockstep/flat/layout.h"
#include "lockstep/flat/observed_module.h"
#include "lockstep/flat/shard_check.h"
#include "lockstep/flat/shards.h"
#include "lockstep/kernels/caching.h"

namespace torch::nn {
class Module;
}

namespace lockstep {

struct FlatParameter {
  std::string name = {};     // the module's; if a tensor has several names, the first
  at::Tensor tensor = {};    // the module's own
  at::Tensor gradient = {};  // its slot in the current buffer, with the parameter's shape; `.grad`
                             // is this tensor after the first backward(). Undefined with
                             // Shard::gradients
  Slot slot = {};
};

/// Consecutive parameters of one segment: its elements [begin, end). The padding between them is
/// zero, in parameters and gradients.
struct FlatRange {
  int segment = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<int> parameters = {};  // in the order of their slots
};

/// A run of elements of one parameter that this rank updates, as one-dimensional tensors. They are
/// in the order of memory, which differs from that of the parameter's indices if its strides do
/// (channels-last).
struct OwnedShard {
  std::string name = {};   // the parameter's
  int parameter = 0;       // its index in parameters()
  std::int64_t begin = 0;  // of the parameter's elements
  at::Tensor value = {};   // its `.grad` is `gradient` while the parameter has an averaged gradient
  at::Tensor gradient = {};
};

struct FlatOptions {
  // backward() writes to one buffer, the current one. The others keep their gradients, so that they
  // can be reduced or used by an optimizer meanwhile.
  int gradient_buffers = 1;
  Shard shard = Shard::none;
  Copies copies = Copies::per_rank;
};

class HostCopies;
class StagedValues;

class FlatParameters {
 public:
  /// Moves the parameters of `module` and its submodules to registered memory of `group`. Values
  /// and gradients do not change; with Copies::per_host all ranks get the values of rank 0.
  /// Collective: every rank calls this, with an equal model: names, shapes, dtypes, strides and
  /// requires_grad are compared.
  /// Throws PeerError that names the first parameter that differs and the rank; UsageError for a
  /// model without parameters, a parameter that is not floating point or is in another
  /// FlatParameters, fewer than one gradient buffer, and Copies::per_host without shards, on a GPU
  /// or with several hosts.
  FlatParameters(torch::nn::Module& module, const ProcessGroup& group,
                 const FlatOptions& options = {});
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;
  ~FlatParameters();

  /// In the order of registration.
  [[nodiscard]] std::span<const FlatParameter> parameters() const noexcept { return parameters_; }
  [[nodiscard]] const Layout& layout() const noexcept { return layout_; }
  [[nodiscard]] int num_segments() const noexcept {
    return static_cast<int>(layout_.segments.size());
  }

  /// A whole segment as a one-dimensional tensor; its gradients in the current buffer or in
  /// `buffer`, which do not exist with Shard::gradients.
  [[nodiscard]] const at::Tensor& values(int segment) const;
  [[nodiscard]] const at::Tensor& gradients(int segment) const;
  [[nodiscard]] const at::Tensor& gradients(int segment, int buffer) const;

  /// For a segment on a GPU: the elements [begin, end) of each parameter of the segment, one row
  /// each, ascending, in int64 on that GPU. Undefined for a segment on the CPU.
  [[nodiscard]] const at::Tensor& slot_table(int segment) const;

  [[nodiscard]] int num_gradient_buffers() const noexcept { return options_.gradient_buffers; }
  /// The current buffer.
  [[nodiscard]] int gradient_buffer() const noexcept { return buffer_; }
  /// Makes `buffer` current: the next gradients are written there, and `.grad` of every parameter,
  /// parameters() and present_gradients() refer to it. Call it between two calls of backward().
  /// Throws UsageError for an invalid buffer.
  void use_gradient_buffer(int buffer);

  /// The maximal ranges of parameters that have a gradient for the optimizer: whose `.grad` is
  /// their slot; with shards, whose shards are averaged.
  [[nodiscard]] std::vector<FlatRange> present_gradients() const;

  /// The parts of these ranges that this rank updates: the ranges themselves without shards.
  [[nodiscard]] std::vector<FlatRange> owned_gradients() const;
  /// The averaged gradients of a range of owned_gradients(), as a one-dimensional tensor.
  [[nodiscard]] at::Tensor averages(const FlatRange& range) const;
  /// The memory of all averaged gradients of a segment: packed if shards().packs_gradients(),
  /// otherwise gradients().
  [[nodiscard]] const at::Tensor& average_memory(int segment) const;
  /// For packed averages: copies those of `gradients` that this rank updates. They are the elements
  /// of a segment from `begin` on, one-dimensional.
  void pack(int segment, std::int64_t begin, const at::Tensor& gradients) const;
  /// The same, for averages of several reductions: begin, add each one multiplied by its weight,
  /// and divide by the sum of the weights.
  void begin_sums();
  void add_to_sums(int segment, std::int64_t begin, const at::Tensor& gradients,
                   std::int64_t weight);
  void divide_sums(std::int64_t weight) const;
  /// Moves gradients that the user has assigned to `.grad` into their slots; they count as
  /// averages.
  void move_in_assigned();

  [[nodiscard]] const Shards& shards() const noexcept { return *shards_; }
  /// The same; an object that holds packed memory keeps it, because rebind() makes new shards.
  [[nodiscard]] const std::shared_ptr<Shards>& shared_shards() const noexcept { return shards_; }
  /// After a reduction: by parameter, whether its slot, or with shards this rank's shards of it,
  /// hold an averaged gradient. Empty: none does.
  void set_averaged(std::vector<bool> averaged);
  [[nodiscard]] bool is_averaged(int parameter) const;
  /// With shards, replaces each number of `mine` by the largest one of all ranks. Collective with
  /// shards.
  void combine_largest(at::Tensor& mine) const;
  /// With shards, each rank receives the elements of `range` from their `owners`. Collective with
  /// shards.
  void share(at::Tensor& range, const Owners& owners) const;
  /// Updates values as Shards::update() does. `update` changes next_values(); if there are
  /// old_values(), it reads these and writes all elements of the part's runs. Collective with
  /// shards. If a rank is lost, the values are all old ones, or all new ones.
  void update(const std::function<bool(int segment, const Shards::Part& part)>& update);

  /// Where update() writes. With Copies::per_host: the next copy. With Copies::per_rank and shards
  /// on the CPU: the memory of the averages, each of which is needed until its value is written;
  /// with Shard::gradients on one host only. Otherwise: values().
  [[nodiscard]] const at::Tensor& next_values(int segment) const;
  /// How to write there: a whole copy past the caches, so that its lines are not read first.
  [[nodiscard]] Caching next_caching() const noexcept {
    return host_copies_ ? Caching::past : Caching::through;
  }
  /// Whether next_values() is packed memory (shards.h).
  [[nodiscard]] bool next_is_packed() const noexcept { return staged_ != nullptr; }
  /// The values in use, unless next_values() has them: then it is undefined.
  [[nodiscard]] at::Tensor old_values(int segment) const;
  /// Throws UsageError if a step has already used the averaged gradients up: its new values have
  /// taken their memory.
  void expect_gradients() const;
  /// All ranks get the values of rank 0. Collective. Throws PeerError.
  void broadcast_values() const;
  /// Rank 0 calls `write`, which may change parameters in place; all ranks get the result.
  /// Collective. Throws what `write` throws on rank 0; PeerError on the others; UsageError as
  /// expect_intact() and expect_shared().
  void write_values(const std::function<void()>& write);

  /// What this rank updates, for an optimizer of your own, such as one of torch::optim, that treats
  /// elements independently:
  ///
  ///   std::vector<torch::Tensor> mine;
  ///   for (const auto& shard : ddp.flat().owned()) mine.push_back(shard.value);
  ///   torch::optim::AdamW optimizer(mine);
  ///   …
  ///   optimizer.step();
  ///   ddp.flat().share_values();   // with shards: the other ranks receive the new values
  ///   net->zero_grad();
  ///
  /// Valid until adopt() and rebind(); made by the first call.
  [[nodiscard]] std::span<const OwnedShard> owned();
  /// Copies the values that each rank updates to all ranks.
  /// Collective: every rank calls this after it has changed values of owned(). Throws PeerError
  /// when a rank is lost. With Copies::per_rank the values of this rank are a mixture then: its own
  /// shards are new, those of others are new or old. expect_intact() says so, and with it every
  /// later backward(), step of an optimizer of lockstep, and rebind(). With Copies::per_host they
  /// are those before the call.
  void share_values();
  /// Throws UsageError if a rank was lost in share_values() with Copies::per_rank, and, with
  /// Copies::per_host, with the names of parameters that the program has changed in place, which
  /// undoes the changes, and if this rank's shards are no longer what it wrote.
  void expect_intact();
  /// With Copies::per_host: throws UsageError if values of owned() were changed since the last
  /// averages, and not shared.
  void expect_shared() const;
  /// The names of the parameters that have one of elements [begin, end) of a segment.
  [[nodiscard]] std::string names_of(int segment, std::int64_t begin, std::int64_t end) const;
  /// Whether shards are updated: owned() was called, or a FlatOptimizer made.
  [[nodiscard]] bool has_updater() const noexcept { return has_updater_; }
  void note_updater() noexcept { has_updater_ = true; }

  [[nodiscard]] GradientSlots& slots() noexcept { return *slots_; }
  [[nodiscard]] const GradientSlots& slots() const noexcept { return *slots_; }

  /// The names of parameters that left this memory or the module: to(), set_data, torch::load and
  /// replace_module do that. Empty when the module has been destroyed.
  [[nodiscard]] std::vector<std::string> moved_parameters() const;
  /// The names of trainable parameters that the module registered after the constructor: their
  /// gradients are not reduced. Empty when the module has been destroyed.
  [[nodiscard]] std::vector<std::string> added_parameters() const;
  /// Throws UsageError with the names of moved or added parameters and what to do, if there are
  /// any; also as expect_intact().
  void expect_in_place();

  /// Moves moved parameters back to this memory, with their current values.
  /// Collective: every rank calls this.
  /// Throws PeerError when the ranks' models differ, UsageError when a name, shape or dtype has
  /// changed since the constructor.
  void adopt();
  /// Moves all parameters and gradients to registered memory of `group`.
  /// Collective: every rank of `group` calls this.
  /// Throws PeerError when the ranks' models differ, UsageError for moved or added parameters.
  void rebind(const ProcessGroup& group);

 private:
  void compare_with_peers(const std::vector<ParameterFacts>& facts) const;
  void move_in();
  void allocate();
  void bind_owned();
  void copy_to_owned();
  void exchange_memory(std::span<const at::Tensor> others);
  void update_with_saved(const std::function<bool(int segment, const Shards::Part& part)>& update);
  void keep_values(int segment, const Shards::Part& part) const;
  void note_written(bool bumps);
  [[nodiscard]] ShardCheck::Memory own_shards(
      const std::function<at::Tensor(int segment)>& copy) const;
  [[nodiscard]] std::optional<ShardCheck::Change> find_change_of_own();
  void report_foreign_write(const ShardCheck::Change& change) const;

  ObservedModule module_;
  ProcessGroup group_;
  FlatOptions options_;
  std::vector<FlatParameter> parameters_;
  std::vector<ParameterFacts> facts_;  // at the time of the constructor
  Layout layout_;
  std::vector<at::Tensor> values_;                  // by segment
  std::vector<std::vector<at::Tensor>> gradients_;  // by buffer and segment
  std::vector<at::Tensor> packed_gradients_;        // by segment; of Shard::gradients only
  std::vector<at::Tensor> slot_tables_;             // by segment
  std::vector<std::vector<at::Tensor>> views_;      // by parameter and buffer
  int buffer_ = 0;                                  // the current one
  std::shared_ptr<Shards> shards_;
  std::vector<bool> averaged_;  // by parameter; empty: none
  std::vector<OwnedShard> owned_;
  bool has_updater_ = false;
  std::unique_ptr<HostCopies> host_copies_;  // null with Copies::per_rank
  std::unique_ptr<StagedValues> staged_;     // with Shard::gradients per rank, on one host
  bool sums_begin_ = false;                  // begin_sums() was called, and none was added since
  // With Copies::per_host, if owned() has got the values in use and others were not shared since:
  // the number handed out by host_copies_ then.
  std::optional<std::int64_t> owned_copied_at_;
  // Values and gradients exchange their memory in each update(): a rank that is lost inside it
  // leaves the values as they were.
  bool exchanges_memory_ = false;
  // With shards, a copy per rank and neither of these, as on GPUs and on several hosts: an update()
  // first copies the old values, which the parameters get back if a rank is lost.
  bool saves_values_ = false;
  std::vector<at::Tensor> saved_;       // by segment; empty outside of update(), unless it threw
  bool is_torn_ = false;                // share_values() has thrown
  bool gradients_are_used_ = false;     // by an update(), which has written to their memory
  std::vector<std::int64_t> versions_;  // of the parameters, as lockstep last wrote them
  ShardCheck value_check_;              // of own_shards(); each note is compared once
  std::int64_t handed_out_ = 0;         // by host_copies_, at the time of the last note
  std::unique_ptr<GradientSlots> slots_;
};

}  // namespace lockstep
