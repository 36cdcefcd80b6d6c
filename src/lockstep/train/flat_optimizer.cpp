#include "lockstep/train/flat_optimizer.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
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
  make_state();
}

FlatOptimizer::~FlatOptimizer() = default;

void FlatOptimizer::make_state() {
  steps_ = at::zeros({static_cast<std::int64_t>(flat_.parameters().size())}, at::kLong);
  state_.resize(state_names_.size());
  for (int number = 0; number < flat_.num_segments(); ++number) {
    const auto& segment = flat_.layout().segments[static_cast<std::size_t>(number)];
    const auto dtype = has_masters(segment.dtype) ? at::kFloat : segment.dtype;
    for (auto& state : state_) {
      state.push_back(at::zeros({segment.length}, at::dtype(dtype).device(segment.device)));
    }
    tables_.push_back(segment.device.is_cuda() ? std::make_unique<DeviceTable>() : nullptr);
    masters_.push_back(has_masters(segment.dtype) ? flat_.values(number).to(at::kFloat)
                                                  : at::Tensor());
  }
}

void FlatOptimizer::step(double lr) {
  expect_lr(kind_, lr);
  std::vector<std::vector<RangeStep>> steps(static_cast<std::size_t>(flat_.num_segments()));
  for (const auto& range : present_gradients(flat_)) {
    add_steps(range, lr, steps[static_cast<std::size_t>(range.segment)]);
  }
  for (std::size_t number = 0; number < steps.size(); ++number) {
    if (steps[number].empty()) continue;
    SegmentMemory memory{.values = flat_.values(static_cast<int>(number)),
                         .gradients = flat_.gradients(static_cast<int>(number)),
                         .masters = masters_[number],
                         .state = {},
                         .table = tables_[number].get()};
    for (const auto& state : state_) memory.state.push_back(state[number]);
    update(memory, steps[number]);
  }
}

// Consecutive parameters with the same group and step count are updated together, including the
// padding between them, which is zero and stays zero.
void FlatOptimizer::add_steps(const FlatRange& range, double lr, std::vector<RangeStep>& steps) {
  auto* counts = steps_.data_ptr<std::int64_t>();
  const auto& indices = range.parameters;
  for (std::size_t first = 0; first < indices.size();) {
    const auto group = group_of_[static_cast<std::size_t>(indices[first])];
    const auto step = counts[indices[first]] + 1;
    RangeStep together{.group = group_step(group, step, lr)};
    auto next = first;
    for (; next < indices.size(); ++next) {
      const auto index = static_cast<std::size_t>(indices[next]);
      if (group_of_[index] != group || counts[index] + 1 != step) break;
      const auto& parameter = flat_.parameters()[index];
      if (next == first) together.begin = parameter.slot.begin;
      together.end = parameter.slot.begin + parameter.slot.count;
      counts[index] = step;
      // Autograd does not see the write; graphs that hold the old value must detect it.
      parameter.tensor.unsafeGetTensorImpl()->bump_version();
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
}

std::vector<std::pair<std::string, at::Tensor>> FlatOptimizer::named_tensors() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::int64_t index = 0;
  for (const auto& parameter : flat_.parameters()) {
    const auto& slot = parameter.slot;
    const auto add = [&](const std::string& name, const at::Tensor& segment) {
      all.emplace_back(
          parameter.name + "." + name,
          segment.as_strided(parameter.gradient.sizes(), parameter.gradient.strides(), slot.begin));
    };
    const auto number = static_cast<std::size_t>(slot.segment);
    for (std::size_t which = 0; which < state_.size(); ++which) {
      add(state_names_[which], state_[which][number]);
    }
    if (masters_[number].defined()) add("master", masters_[number]);
    all.emplace_back(parameter.name + ".step", steps_.select(0, index++));
  }
  return all;
}

std::string FlatOptimizer::state_json() const { return nlohmann::json{{"kind", kind_}}.dump(); }

void FlatOptimizer::load_state_json(std::string_view json) {
  std::string kind;
  try {
    kind = nlohmann::json::parse(json).at("kind").get<std::string>();
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("not the state of an optimizer: {}", error.what()));
  }
  if (kind == kind_) return;
  throw UsageError(fmt::format(
      "the checkpoint was saved with the optimizer {}, and this program has {}: use the saved one",
      kind, kind_));
}

}  // namespace lockstep
