#include "lockstep/train/flat_optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "lockstep/base/error.h"
#include "lockstep/flat/device_stream.h"
#include "lockstep/kernels/copy_pass.h"
#include "lockstep/train/device_table_internal.h"
#include "lockstep/train/present_gradients_internal.h"

namespace lockstep {
namespace {

bool has_masters(at::ScalarType dtype) { return dtype == at::kBFloat16; }

void expect_dtype(const FlatParameter& parameter, std::string_view kind) {
  const auto dtype = parameter.tensor.scalar_type();
  if (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16) return;
  throw UsageError(fmt::format(
      "{} supports parameters of float32, float64 and bfloat16, and {} is {}: keep it in "
      "float32 and use Autocast for 16-bit compute, or use torch::optim",
      kind, parameter.name, c10::toString(dtype)));
}

void expect_lr(std::string_view kind, double lr) {
  expect_option(std::isfinite(lr) && lr >= 0, kind, "lr", lr, "0 or more");
}

// The steps of the elements that both `steps` and `runs` have; both ascend.
std::vector<RangeStep> steps_in(std::span<const RangeStep> steps, std::span<const OwnedRun> runs) {
  std::vector<RangeStep> inside;
  for (const auto& run : runs) {
    for (const auto& step : steps) {
      const auto begin = std::max(step.elements.begin, run.begin);
      const auto count = std::min(step.elements.end(), run.end()) - begin;
      if (count <= 0) continue;
      inside.push_back({.elements = {begin, count, run.packed(begin)}, .group = step.group});
    }
  }
  return inside;
}

// Copies the elements of `runs` that made no step from the old values. Both lists ascend.
void copy_rest(const SegmentMemory& memory, std::span<const OwnedRun> runs,
               std::span<const RangeStep> stepped) {
  const auto width = static_cast<std::int64_t>(memory.values.element_size());
  const auto* const from = static_cast<const std::byte*>(memory.old_values.const_data_ptr());
  auto* const to = static_cast<std::byte*>(memory.values.data_ptr());
  const auto copy = [&](const OwnedRun& run, std::int64_t begin, std::int64_t end) {
    const auto target = memory.values_are_packed ? run.packed(begin) : begin;
    if (begin < end) {
      copy_pass({to + target * width, static_cast<std::size_t>((end - begin) * width)},
                from + begin * width, memory.caching);
    }
  };
  auto next = stepped.begin();
  for (const auto& run : runs) {
    auto begin = run.begin;
    for (; next != stepped.end() && next->elements.begin < run.end(); ++next) {
      copy(run, begin, next->elements.begin);
      begin = next->elements.end();
    }
    copy(run, begin, run.end());
  }
}

bool overlap(std::span<const RangeStep> steps, const ElementRange& range) {
  return std::any_of(steps.begin(), steps.end(), [&](const RangeStep& step) {
    return step.elements.begin < range.begin + range.count && range.begin < step.elements.end();
  });
}

// Autograd does not see the write of a step; graphs that hold the old value must detect it.
void note_write(const at::Tensor& parameter) { parameter.unsafeGetTensorImpl()->bump_version(); }

}  // namespace

void expect_option(bool holds, std::string_view kind, std::string_view option, double value,
                   std::string_view range) {
  if (holds) return;
  throw UsageError(fmt::format("{} with {} {}: expected {}", kind, option, value, range));
}

ParameterGroup no_decay_for_biases_and_norms() {
  return {.matches = [](const FlatParameter& parameter) { return parameter.tensor.dim() < 2; },
          .weight_decay = 0};
}

std::function<bool(const FlatParameter&)> named(std::string part) {
  return [part = std::move(part)](const FlatParameter& parameter) {
    return parameter.name.find(part) != std::string::npos;
  };
}

FlatOptimizer::FlatOptimizer(FlatParameters& flat, Settings settings)
    : flat_(flat),
      shards_(flat.shared_shards()),
      kind_(std::move(settings.kind)),
      lr_(settings.lr),
      weight_decay_(settings.weight_decay),
      groups_(std::move(settings.groups)),
      state_names_(std::move(settings.state_names)) {
  expect_lr(kind_, lr_);
  const auto expect_decay = [&](double decay) {
    expect_option(std::isfinite(decay) && decay >= 0, kind_, "weight_decay", decay, "0 or more");
  };
  expect_decay(weight_decay_);
  for (const auto& group : groups_) {
    expect_lr(kind_, group.lr_factor);
    if (group.weight_decay) expect_decay(*group.weight_decay);
  }
  for (const auto& parameter : flat_.parameters()) {
    expect_dtype(parameter, kind_);
    std::size_t group = 0;
    while (group < groups_.size() && !groups_[group].matches(parameter)) ++group;
    group_of_.push_back(group);
  }
  flat_.note_updater();
  make_state();
}

FlatOptimizer::~FlatOptimizer() = default;

void FlatOptimizer::make_state() {
  index_in_segment_.resize(flat_.parameters().size());
  state_.resize(state_names_.size());
  for (int number = 0; number < flat_.num_segments(); ++number) {
    const auto& segment = flat_.layout().segments[static_cast<std::size_t>(number)];
    const auto dtype = has_masters(segment.dtype) ? at::kFloat : segment.dtype;
    for (auto& state : state_) state.push_back(shards_->make_packed(number, dtype));
    masters_.push_back(has_masters(segment.dtype) ? make_masters(number) : at::Tensor());
    steps_.push_back(at::zeros({static_cast<std::int64_t>(segment.parameters.size())},
                               at::dtype(at::kLong).device(segment.device)));
    std::uint32_t next = 0;
    for (const int index : segment.parameters)
      index_in_segment_[static_cast<std::size_t>(index)] = next++;
    tables_.push_back(segment.device.is_cuda() ? make_table(number) : nullptr);
    if (segment.device.is_cuda() && !lr_cell_.defined()) {
      lr_cell_ = at::full({}, lr_, at::dtype(at::kDouble).device(segment.device));
    }
  }
}

at::Tensor FlatOptimizer::make_masters(int segment) const {
  auto masters = shards_->make_packed(segment, at::kFloat);
  for (const auto& run : shards_->runs(segment)) {
    masters.narrow(0, run.packed_begin, run.count)
        .copy_(flat_.values(segment).narrow(0, run.begin, run.count));
  }
  return masters;
}

std::unique_ptr<DeviceTable> FlatOptimizer::make_table(int number) const {
  const auto& segment = flat_.layout().segments[static_cast<std::size_t>(number)];
  std::vector<Slot> slots;
  std::vector<DeviceGroup> groups;
  for (const int index : segment.parameters) {
    const auto group = group_step(group_of_[static_cast<std::size_t>(index)], 0, 1);
    slots.push_back(flat_.layout().slots[static_cast<std::size_t>(index)]);
    groups.push_back({.lr_factor = group.lr, .weight_decay = group.weight_decay});
  }
  return std::make_unique<DeviceTable>(std::move(slots), groups, shards_->runs(number),
                                       segment.device);
}

void FlatOptimizer::set_lr(double lr) {
  expect_lr(kind_, lr);
  if (lr == lr_) return;
  lr_ = lr;
  if (lr_cell_.defined()) lr_cell_.fill_(lr);
}

void FlatOptimizer::step() { make_step(inputs_of_options({})); }
void FlatOptimizer::step(double lr) { make_step(inputs(lr, {})); }
void FlatOptimizer::step_unless(const at::Tensor& skip) {
  if (must_read(skip)) return skip.item<int>() == 0 ? step() : void();
  make_step(inputs_of_options(skip));
}
void FlatOptimizer::step_unless(const at::Tensor& skip, double lr) {
  if (must_read(skip)) return skip.item<int>() == 0 ? step(lr) : void();
  make_step(inputs(lr, skip));
}

bool FlatOptimizer::must_read(const at::Tensor& skip) const {
  const auto& segments = flat_.layout().segments;
  return std::any_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    return segment.device.is_cpu() || segment.device != skip.device();
  });
}

DeviceStepInputs FlatOptimizer::inputs(double lr, const at::Tensor& skip) const {
  expect_lr(kind_, lr);
  if (lr_cell_.defined() && is_capturing(current_stream(lr_cell_.device()))) {
    throw UsageError(
        fmt::format("{}::step(lr) cannot be captured: every replay of the CUDA graph would use the "
                    "same lr. Call step(), and set_lr(lr) before each replay",
                    kind_));
  }
  return {
      .lr = lr,
      .skip = skip.defined() ? static_cast<const std::uint32_t*>(skip.const_data_ptr()) : nullptr};
}

DeviceStepInputs FlatOptimizer::inputs_of_options(const at::Tensor& skip) {
  if (!lr_cell_.defined() || !is_capturing(current_stream(lr_cell_.device()))) {
    return inputs(lr_, skip);
  }
  return {
      .lr_cell = lr_cell_.const_data_ptr<double>(),
      .skip = skip.defined() ? static_cast<const std::uint32_t*>(skip.const_data_ptr()) : nullptr};
}

void FlatOptimizer::make_step(const DeviceStepInputs& inputs) {
  expect_own_state();
  follow_rebind();
  std::vector<std::vector<RangeStep>> steps(tables_.size());
  std::vector<std::vector<std::uint32_t>> present(tables_.size());
  for (const auto& range : present_gradients(flat_)) {
    const auto number = static_cast<std::size_t>(range.segment);
    if (tables_[number] == nullptr) {
      add_steps(range, inputs.lr, steps[number]);
      continue;
    }
    for (const int index : range.parameters) {
      present[number].push_back(index_in_segment_[static_cast<std::size_t>(index)]);
      note_write(flat_.parameters()[static_cast<std::size_t>(index)].tensor);
    }
  }
  flat_.update([&](int segment, const Shards::Part& part) {
    const auto number = static_cast<std::size_t>(segment);
    if (const auto& table = tables_[number]) {
      if (present[number].empty()) return false;
      table->use(present[number]);
      update(memory_of(segment, inputs), {});
      return true;
    }
    const auto own = steps_in(steps[number], part.runs);
    const auto memory = memory_of(segment, inputs);
    if (!own.empty()) update(memory, own);
    if (memory.old_values.defined()) copy_rest(memory, part.runs, own);
    return overlap(steps[number], part.range);
  });
  state_check_.note(own_state());
}

SegmentMemory FlatOptimizer::memory_of(int segment, const DeviceStepInputs& inputs) const {
  const auto number = static_cast<std::size_t>(segment);
  SegmentMemory memory{
      .values = flat_.next_values(segment),
      .values_are_packed = flat_.next_is_packed(),
      .old_values = flat_.old_values(segment),
      .caching = flat_.next_caching(),
      .gradients = flat_.average_memory(segment),
      .gradients_are_packed = shards_->packs_gradients(),
      .masters = masters_[number],
      .state = {},
      .device = {.table = tables_[number].get(), .counts = steps_[number], .inputs = inputs}};
  for (const auto& state : state_) memory.state.push_back(state[number]);
  return memory;
}

// Consecutive parameters with the same group and step count are updated together, including the
// padding between them, which is zero and stays zero.
void FlatOptimizer::add_steps(const FlatRange& range, double lr, std::vector<RangeStep>& steps) {
  auto* counts = steps_[static_cast<std::size_t>(range.segment)].data_ptr<std::int64_t>();
  const auto& indices = range.parameters;
  const auto count_of = [&](int index) -> std::int64_t& {
    return counts[index_in_segment_[static_cast<std::size_t>(index)]];
  };
  for (std::size_t first = 0; first < indices.size();) {
    const auto group = group_of_[static_cast<std::size_t>(indices[first])];
    const auto step = count_of(indices[first]) + 1;
    RangeStep together{.group = group_step(group, step, lr)};
    auto next = first;
    for (; next < indices.size(); ++next) {
      const auto index = static_cast<std::size_t>(indices[next]);
      if (group_of_[index] != group || count_of(indices[next]) + 1 != step) break;
      const auto& parameter = flat_.parameters()[index];
      if (next == first) together.elements.begin = parameter.slot.begin;
      together.elements.count =
          parameter.slot.begin + parameter.slot.count - together.elements.begin;
      count_of(indices[next]) = step;
      note_write(parameter.tensor);
    }
    steps.push_back(together);
    first = next;
  }
}

GroupStep FlatOptimizer::group_step(std::size_t group, std::int64_t step, double lr) const {
  if (group == groups_.size()) return {lr, weight_decay_, step};
  const auto& own = groups_[group];
  return {lr * own.lr_factor, own.weight_decay.value_or(weight_decay_), step};
}

void FlatOptimizer::zero_grad() {
  for (const auto& parameter : flat_.parameters()) parameter.tensor.mutable_grad().reset();
  flat_.set_averaged({});
}

}  // namespace lockstep
