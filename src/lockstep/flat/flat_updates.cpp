// The part of FlatParameters that updates values: which gradients there are, which elements this
// rank updates, and how other ranks get the new values.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/StorageImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/flat/flat_parameters.h"
#include "lockstep/flat/host_copies.h"
#include "lockstep/flat/staged_values.h"
#include "lockstep/kernels/moved_bytes.h"

namespace lockstep {

std::vector<FlatRange> FlatParameters::present_gradients() const {
  std::vector<FlatRange> ranges;
  for (int number = 0; number < num_segments(); ++number) {
    const auto& segment = layout_.segments[static_cast<std::size_t>(number)];
    bool open = false;
    for (const int index : segment.parameters) {
      const auto& slot = layout_.slots[static_cast<std::size_t>(index)];
      if (shards_->is_sharded() ? !is_averaged(index) : !slots_->is_bound(index)) {
        open = false;
        continue;
      }
      if (!open) ranges.push_back({.segment = number, .begin = slot.begin});
      open = true;
      ranges.back().end = slot.begin + slot.count;
      ranges.back().parameters.push_back(index);
    }
  }
  return ranges;
}

std::vector<FlatRange> FlatParameters::owned_gradients() const {
  expect_gradients();
  auto present = present_gradients();
  if (!shards_->is_sharded()) return present;
  std::vector<FlatRange> owned;
  for (const auto& range : present) {
    const auto count = range.end - range.begin;
    for (const auto& run : shards_->runs_within(range.segment, range.begin, count)) {
      FlatRange part{.segment = range.segment, .begin = run.begin, .end = run.end()};
      for (const int index : range.parameters) {
        const auto& slot = layout_.slots[static_cast<std::size_t>(index)];
        if (slot.begin < part.end && slot.begin + slot.count > part.begin) {
          part.parameters.push_back(index);
        }
      }
      owned.push_back(std::move(part));
    }
  }
  return owned;
}

const at::Tensor& FlatParameters::average_memory(int segment) const {
  return shards_->packs_gradients() ? packed_gradients_.at(static_cast<std::size_t>(segment))
                                    : gradients(segment);
}

at::Tensor FlatParameters::averages(const FlatRange& range) const {
  auto begin = range.begin;
  const auto count = range.end - range.begin;
  if (shards_->packs_gradients()) {
    begin = shards_->runs_within(range.segment, begin, count).at(0).packed_begin;
  }
  return average_memory(range.segment).narrow(0, begin, count);
}

void FlatParameters::pack(int segment, std::int64_t begin, const at::Tensor& gradients) const {
  const auto& to = average_memory(segment);
  for (const auto& run : shards_->runs_within(segment, begin, gradients.numel())) {
    to.narrow(0, run.packed_begin, run.count)
        .copy_(gradients.narrow(0, run.begin - begin, run.count));
  }
}

// Not before the first reduction of the step: until then other ranks may read the new values of the
// last step there (staged_values.h).
void FlatParameters::begin_sums() { sums_begin_ = true; }

void FlatParameters::add_to_sums(int segment, std::int64_t begin, const at::Tensor& gradients,
                                 std::int64_t weight) {
  if (std::exchange(sums_begin_, false)) {
    for (const auto& sums : packed_gradients_) sums.zero_();
  }
  const auto& sums = average_memory(segment);
  for (const auto& run : shards_->runs_within(segment, begin, gradients.numel())) {
    sums.narrow(0, run.packed_begin, run.count)
        .add_(gradients.narrow(0, run.begin - begin, run.count), weight);
  }
}

void FlatParameters::divide_sums(std::int64_t weight) const {
  for (const auto& sums : packed_gradients_) sums.div_(weight);
}

void FlatParameters::move_in_assigned() {
  std::vector<bool> averaged;
  bool is_any_assigned = false;
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    const bool is_assigned = slots_->move_in_assigned(i);
    is_any_assigned = is_any_assigned || is_assigned;
    averaged.push_back(is_assigned || (is_averaged(i) && !gradients_are_used_));
    if (!is_assigned || !shards_->packs_gradients()) continue;
    const auto& [segment, begin, count] = layout_.slots[static_cast<std::size_t>(i)];
    slots_->flush();
    pack(segment, begin,
         parameters_[static_cast<std::size_t>(i)].tensor.grad().as_strided({count}, {1}));
  }
  slots_->flush();
  if (is_any_assigned) set_averaged(std::move(averaged));
}

void FlatParameters::combine_largest(at::Tensor& mine) const {
  if (!shards_->is_sharded()) return;
  group_.all_reduce(mine, ReduceOp::max, {.name = "flags of the shards"}).wait();
}

void FlatParameters::share(at::Tensor& range, const Owners& owners) const {
  if (!shards_->is_sharded()) return;
  group_
      .gather_from_owners(range, std::make_shared<const Owners>(owners),
                          {.name = "sums of the shards"})
      .wait();
}

void FlatParameters::set_averaged(std::vector<bool> averaged) {
  averaged_ = std::move(averaged);
  gradients_are_used_ = false;
  bind_owned();
}

bool FlatParameters::is_averaged(int parameter) const {
  return !averaged_.empty() && averaged_[static_cast<std::size_t>(parameter)];
}

void FlatParameters::update(
    const std::function<bool(int segment, const Shards::Part& part)>& update) {
  if (exchanges_memory_ || staged_ || saves_values_) {
    // Nothing changes. Gradients that wait for their average are in that memory, and stay.
    if (std::find(averaged_.begin(), averaged_.end(), true) == averaged_.end()) return;
    gradients_are_used_ = !saves_values_;
  }
  if (host_copies_) {
    host_copies_->update(*shards_, update);
    owned_copied_at_.reset();
  } else if (exchanges_memory_) {
    shards_->update(gradients_[static_cast<std::size_t>(buffer_)], update,
                    [this](int segment, const Shards::Part& part) { keep_values(segment, part); });
    exchange_memory(gradients_[static_cast<std::size_t>(buffer_)]);
  } else if (staged_) {
    staged_->update(*shards_, values_, update);
  } else if (saves_values_) {
    update_with_saved(update);
  } else {
    shards_->update(values_, update);
  }
  note_written(/*bumps=*/false);
}

// The saved values exist only here, when backward has freed what it needed. If a rank is lost, the
// parameters get their memory. That of the mixture stays until the next update or rebind(), and is
// not used: transfers of a lost group may end late.
void FlatParameters::update_with_saved(
    const std::function<bool(int segment, const Shards::Part& part)>& update) {
  saved_.clear();
  std::vector<at::Tensor> saved;
  for (const auto& segment : values_) {
    const auto bytes = static_cast<std::uint64_t>(segment.nbytes());
    if (segment.is_cpu()) note_moved({.loaded = bytes, .stored = bytes});
    saved.push_back(segment.clone());
  }
  saved_ = std::move(saved);
  try {
    shards_->update(values_, update);
  } catch (...) {
    exchange_memory(saved_);
    throw;
  }
  saved_.clear();
}

void FlatParameters::keep_values(int segment, const Shards::Part& part) const {
  const auto& [begin, count] = part.range;
  next_values(segment).narrow(0, begin, count).copy_(values(segment).narrow(0, begin, count));
}

// Every view of a segment, such as a parameter of the module, has its storage, and so gets the
// other memory.
void FlatParameters::exchange_memory(std::span<const at::Tensor> others) {
  for (int i = 0; i < num_segments(); ++i) {
    auto* const first = values(i).storage().unsafeGetStorageImpl();
    auto* const second = others[static_cast<std::size_t>(i)].storage().unsafeGetStorageImpl();
    auto memory = first->set_data_ptr(at::DataPtr());
    first->set_data_ptr_noswap(second->set_data_ptr(std::move(memory)));
  }
}

const at::Tensor& FlatParameters::next_values(int segment) const {
  if (host_copies_) return host_copies_->next(segment);
  return exchanges_memory_ || staged_ ? average_memory(segment) : values(segment);
}

at::Tensor FlatParameters::old_values(int segment) const {
  if (host_copies_) return host_copies_->shared(segment);
  return exchanges_memory_ || staged_ ? values(segment) : at::Tensor();
}

void FlatParameters::expect_gradients() const {
  if (!gradients_are_used_) return;
  throw UsageError(
      "the averaged gradients are gone: with shards the new values of a step take their memory. "
      "Read their norm, clip and unscale them before step(), and call backward() before the next "
      "one");
}

void FlatParameters::broadcast_values() const {
  if (host_copies_) return;  // there is one copy
  for (auto segment : values_) {
    if (segment.is_complex()) segment = at::view_as_real(segment);
    group_.broadcast(segment, 0, {.name = "parameters"}).wait();
  }
}

void FlatParameters::write_values(const std::function<void()>& write) {
  expect_intact();
  expect_shared();
  const at::NoGradGuard off;
  // Before this barrier a rank may still read.
  group_.barrier({.name = "parameters are written"}).wait();
  std::exception_ptr failure;
  if (group_.rank() == 0) {
    if (host_copies_) host_copies_->allow_writes(true);
    try {
      write();
    } catch (...) {
      failure = std::current_exception();
    }
    if (host_copies_) host_copies_->allow_writes(false);
  }
  constexpr std::uint32_t kFailed = 1;
  CallFlags flags;
  if (failure) flags.any = kFailed;
  auto written = group_.barrier({.name = "parameters are written", .flags = flags});
  written.wait();
  broadcast_values();
  if (host_copies_) {
    host_copies_->forget_writes();
    if (owned_copied_at_) copy_to_owned();
  }
  note_written(/*bumps=*/true);
  if (failure) std::rethrow_exception(failure);
  if ((written.flags().any & kFailed) == 0) return;
  throw PeerError(group_.global_rank(0),
                  fmt::format("rank {} failed while it wrote parameters; see its output",
                              group_.global_rank(0)));
}

std::span<const OwnedShard> FlatParameters::owned() {
  has_updater_ = true;
  if (!owned_.empty()) return owned_;
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    const auto& slot = layout_.slots[static_cast<std::size_t>(i)];
    // Without copies per host it is updated in place: the program's optimizer has one tensor.
    const auto& written = host_copies_ ? next_values(slot.segment) : values(slot.segment);
    for (const auto& run : shards_->runs_within(slot.segment, slot.begin, slot.count)) {
      owned_.push_back({.name = parameters_[static_cast<std::size_t>(i)].name,
                        .parameter = i,
                        .begin = run.begin - slot.begin,
                        // Not views in autograd's sense: optimizers write to them in place.
                        .value = written.narrow(0, run.begin, run.count).variable_data(),
                        .gradient = {}});
    }
  }
  bind_owned();
  return owned_;
}

void FlatParameters::bind_owned() {
  if (host_copies_ && !owned_.empty() && !averaged_.empty()) copy_to_owned();
  for (auto& shard : owned_) {
    const auto& slot = layout_.slots[static_cast<std::size_t>(shard.parameter)];
    const auto begin = slot.begin + shard.begin;
    const FlatRange range{
        .segment = slot.segment, .begin = begin, .end = begin + shard.value.numel()};
    shard.gradient = averages(range).variable_data();
    shard.value.mutable_grad() = is_averaged(shard.parameter) ? shard.gradient : at::Tensor();
  }
}

void FlatParameters::copy_to_owned() {
  host_copies_->copy_own(*shards_);
  owned_copied_at_ = host_copies_->num_handed_out();
}

void FlatParameters::share_values() {
  expect_intact();
  if (host_copies_) {
    if (!owned_copied_at_) host_copies_->copy_own(*shards_);
    owned_copied_at_.reset();
    host_copies_->switch_over();
  } else {
    is_torn_ = shards_->is_sharded();  // until all ranks have the new values
    shards_->update(values_, [](int, const Shards::Part&) { return true; });
    is_torn_ = false;
  }
  note_written(/*bumps=*/true);
}

}  // namespace lockstep
