#include "lockstep/flat/flat_parameters.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/collectives/shared_region.h"
#include "lockstep/flat/host_copies.h"
#include "lockstep/flat/staged_values.h"
#include "lockstep/flat/upload.h"

namespace lockstep {
namespace {

struct Registered {
  std::string name;
  at::Tensor tensor;
};

// Each tensor once, under its first name. Empty when the module has been destroyed.
std::vector<Registered> registered_in(const ObservedModule& module) {
  std::vector<Registered> all;
  if (module.get() == nullptr) return all;
  std::unordered_set<const void*> known;
  for (const auto& item : module.get()->named_parameters()) {
    if (known.insert(item.value().unsafeGetTensorImpl()).second) {
      all.push_back({item.key(), item.value()});
    }
  }
  return all;
}

bool is_reducible(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kComplexHalf:
    case at::kComplexFloat:
    case at::kComplexDouble:
      return true;
    default:
      return false;
  }
}

void expect_usable(const Registered& parameter, const ProcessGroup& group) {
  const auto& [name, tensor] = parameter;
  if (!tensor.defined()) {
    throw UsageError(
        fmt::format("parameter {} is undefined: initialize the module before it is wrapped", name));
  }
  if (!tensor.is_floating_point() && !tensor.is_complex()) {
    throw UsageError(
        fmt::format("parameter {} is {}; gradients need floating point: register other tensors as "
                    "buffers",
                    name, c10::toString(tensor.scalar_type())));
  }
  if (!is_reducible(tensor.scalar_type())) {
    throw UsageError(
        fmt::format("parameter {} is {}; supported are float32, float64, float16, bfloat16 and "
                    "complex: convert it, or register it as a buffer",
                    name, c10::toString(tensor.scalar_type())));
  }
  if (GradientSlots::has_slot(tensor)) {
    throw UsageError(
        fmt::format("parameter {} is already in another Ddp or FlatParameters: a model, or a "
                    "parameter that two models share, can be in one at a time; destroy the first "
                    "before you make the second",
                    name));
  }
  group.expect_usable(tensor.device(), fmt::format("parameter {}", name));
}

std::vector<ParameterFacts> facts_of_all(const std::vector<Registered>& parameters) {
  std::vector<ParameterFacts> facts;
  for (const auto& [name, tensor] : parameters) facts.push_back(facts_of(name, tensor));
  return facts;
}

at::Tensor table_of(const Segment& segment, const Layout& layout) {
  std::vector<std::int64_t> ends;
  for (const int index : segment.parameters) {
    const auto& slot = layout.slots[static_cast<std::size_t>(index)];
    ends.insert(ends.end(), {slot.begin, slot.begin + slot.count});
  }
  return upload(std::as_bytes(std::span(ends)), segment.device, "the layout of the parameters")
      .view(at::kLong)
      .view({-1, 2});
}

at::Tensor view_of(const at::Tensor& segment, const Slot& slot, const ParameterFacts& facts) {
  return segment.as_strided(facts.sizes, facts.strides, slot.begin);
}

}  // namespace

FlatParameters::FlatParameters(torch::nn::Module& module, const ProcessGroup& group,
                               const FlatOptions& options)
    : module_(module), group_(group), options_(options) {
  if (options.gradient_buffers < 1) {
    throw UsageError(fmt::format("FlatOptions::gradient_buffers is {}; expected at least 1",
                                 options.gradient_buffers));
  }
  if (options.copies == Copies::per_host && options.shard == Shard::none) {
    throw UsageError(
        "Copies::per_host needs shards, because one rank writes each element: set "
        "Shard::optimizer or Shard::gradients too");
  }
  const auto registered = registered_in(module_);
  if (registered.empty()) throw UsageError("the model has no parameters");
  for (const auto& parameter : registered) expect_usable(parameter, group_);
  facts_ = facts_of_all(registered);
  compare_with_peers(facts_);
  layout_ = lay_out(facts_);
  for (std::size_t i = 0; i < registered.size(); ++i) {
    parameters_.push_back({.name = registered[i].name,
                           .tensor = registered[i].tensor,
                           .gradient = {},
                           .slot = layout_.slots[i]});
  }
  move_in();
}

FlatParameters::~FlatParameters() = default;

const at::Tensor& FlatParameters::values(int segment) const {
  return values_.at(static_cast<std::size_t>(segment));
}

const at::Tensor& FlatParameters::gradients(int segment) const {
  return gradients(segment, buffer_);
}

const at::Tensor& FlatParameters::gradients(int segment, int buffer) const {
  return gradients_.at(static_cast<std::size_t>(buffer)).at(static_cast<std::size_t>(segment));
}

const at::Tensor& FlatParameters::slot_table(int segment) const {
  return slot_tables_.at(static_cast<std::size_t>(segment));
}

void FlatParameters::use_gradient_buffer(int buffer) {
  if (buffer < 0 || buffer >= options_.gradient_buffers) {
    throw UsageError(
        fmt::format("no gradient buffer {}: FlatOptions::gradient_buffers is {}, numbered from 0",
                    buffer, options_.gradient_buffers));
  }
  if (buffer == buffer_) return;
  slots_->use_buffer(buffer);
  buffer_ = buffer;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].gradient = views_[i][static_cast<std::size_t>(buffer)];
  }
}

std::vector<std::string> FlatParameters::moved_parameters() const {
  if (module_.get() == nullptr) return {};
  std::unordered_map<std::string_view, const at::Tensor*> now;
  const auto registered = registered_in(module_);
  for (const auto& [name, tensor] : registered) now.emplace(name, &tensor);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& parameter = parameters_[i];
    const auto found = now.find(parameter.name);
    const bool still_there = found != now.end() && found->second->is_same(parameter.tensor);
    if (!still_there || !slots_->is_in_place(static_cast<int>(i))) names.push_back(parameter.name);
  }
  return names;
}

std::vector<std::string> FlatParameters::added_parameters() const {
  std::unordered_set<std::string_view> known;
  for (const auto& parameter : parameters_) known.insert(parameter.name);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : registered_in(module_)) {
    if (tensor.defined() && tensor.requires_grad() && !known.contains(name)) names.push_back(name);
  }
  return names;
}

void FlatParameters::expect_in_place() {
  expect_intact();
  if (const auto names = added_parameters(); !names.empty()) {
    throw UsageError(fmt::format(
        "parameters were added to the module after the Ddp was made, and their gradients are not "
        "reduced: {}. Register every parameter before you make the Ddp",
        fmt::join(names, ", ")));
  }
  const auto names = moved_parameters();
  if (names.empty()) return;
  throw UsageError(fmt::format(
      "parameters are no longer in registered memory: {}. to(), set_data, torch::load and "
      "replace_module move them: call these before the Ddp is made, or call adopt() on all ranks "
      "afterwards",
      fmt::join(names, ", ")));
}

void FlatParameters::adopt() {
  const auto registered = registered_in(module_);
  const auto facts = facts_of_all(registered);
  compare_with_peers(facts);
  if (registered.size() != parameters_.size()) {
    auto changed = moved_parameters();
    for (const auto& name : added_parameters()) changed.push_back(name);
    throw UsageError(
        fmt::format("the model had {} parameters when the Ddp was made and has {} now; added or "
                    "removed: {}. Make a new Ddp for the changed model",
                    parameters_.size(), registered.size(), fmt::join(changed, ", ")));
  }
  for (std::size_t i = 0; i < registered.size(); ++i) {
    const auto& then = facts_[i];
    const auto& now = facts[i];
    if (now.name != then.name || now.dtype != then.dtype || now.sizes != then.sizes) {
      throw UsageError(
          fmt::format("adopt() of a parameter that has changed: it was \"{}\" when the Ddp was "
                      "made and is \"{}\" now. Make a new Ddp for the changed model",
                      to_string(then), to_string(now)));
    }
    parameters_[i].tensor = registered[i].tensor;
  }
  move_in();
}

void FlatParameters::rebind(const ProcessGroup& group) {
  expect_in_place();
  if (host_copies_) host_copies_->forget_writes();  // rank 0 copies what it sees
  group_ = group;
  compare_with_peers(facts_of_all(registered_in(module_)));
  values_.clear();
  gradients_.clear();
  move_in();
}

void FlatParameters::move_in() {
  const at::NoGradGuard off;
  if (values_.empty()) allocate();  // if this throws, the slots have not changed
  slots_.reset();
  averaged_.clear();
  gradients_are_used_ = false;
  owned_.clear();
  owned_copied_at_.reset();
  buffer_ = 0;
  views_.clear();
  std::vector<GradientSlots::Entry> entries;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    const auto segment = static_cast<std::size_t>(parameter.slot.segment);
    auto value = view_of(values_[segment], parameter.slot, facts_[i]);
    if (parameter.tensor.const_data_ptr() != value.const_data_ptr() ||
        parameter.tensor.strides() != value.strides()) {
      // Of one copy for all ranks, rank 0 writes the values.
      if (!host_copies_ || group_.rank() == 0) shared_memory_of(value).copy_(parameter.tensor);
      parameter.tensor.set_data(value);
    }
    auto& views = views_.emplace_back();
    for (const auto& buffer : gradients_) {
      // variable_data(): not a view in autograd's sense, because optimizers call detach_() on it.
      views.push_back(shards_->packs_gradients()
                          ? at::Tensor()
                          : view_of(buffer[segment], parameter.slot, facts_[i]).variable_data());
    }
    parameter.gradient = views.front();
    entries.push_back({parameter.name, parameter.tensor, views});
  }
  slots_ = std::make_unique<GradientSlots>(std::move(entries));
  if (host_copies_) {
    group_.barrier({.name = "parameters are written"}).wait();
    host_copies_->forget_writes();
  }
  note_written(/*bumps=*/false);
}

void FlatParameters::allocate() {
  slot_tables_.clear();
  for (const auto& segment : layout_.segments) {
    slot_tables_.push_back(segment.device.is_cuda() ? table_of(segment, layout_) : at::Tensor());
  }
  shards_ = std::make_shared<Shards>(layout_, group_, options_.shard);
  exchanges_memory_ = options_.shard == Shard::optimizer && options_.copies == Copies::per_rank &&
                      layout_.is_on_cpu();
  host_copies_ =
      options_.copies == Copies::per_host ? std::make_unique<HostCopies>(group_, layout_) : nullptr;
  gradients_.assign(static_cast<std::size_t>(options_.gradient_buffers), {});
  packed_gradients_.clear();
  staged_.reset();
  if (shards_->packs_gradients() && !host_copies_ && StagedValues::fits(group_, layout_)) {
    staged_ = std::make_unique<StagedValues>(group_, layout_, shards_->ownership());
  }
  saves_values_ =
      shards_->is_sharded() && !host_copies_ && !exchanges_memory_ && !staged_ && group_.size() > 1;
  saved_.clear();
  for (const auto& segment : layout_.segments) {
    const auto number = static_cast<int>(values_.size());
    const auto bytes = segment.length * static_cast<std::int64_t>(c10::elementSize(segment.dtype));
    const auto make = [&] { return group_.allocate(bytes, segment.device).view(segment.dtype); };
    values_.push_back(host_copies_ ? host_copies_->values(number) : make());
    if (shards_->packs_gradients()) {
      packed_gradients_.push_back(staged_ ? staged_->own(number)
                                          : shards_->make_packed(number, segment.dtype));
      continue;
    }
    for (auto& buffer : gradients_) buffer.push_back(make());
  }
}

}  // namespace lockstep
