// The state of an optimizer over flat buffers: for checkpoints, and in a new group.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/train/device_table_internal.h"
#include "lockstep/train/flat_optimizer.h"

namespace lockstep {

// The group of the flat buffers may be another one since the last step, with other shards.
void FlatOptimizer::follow_rebind() {
  const auto old = std::exchange(shards_, flat_.shared_shards());
  if (old == shards_ || !shards_->is_sharded()) return;
  for (int number = 0; number < flat_.num_segments(); ++number) {
    const auto index = static_cast<std::size_t>(number);
    for (auto& state : state_) state[index] = shards_->redistribute(*old, number, state[index]);
    if (auto& masters = masters_[index]; masters.defined()) {
      masters = shards_->redistribute(*old, number, masters);
    }
    if (tables_[index] != nullptr) tables_[index] = make_table(number);
  }
}

std::vector<std::pair<std::string, at::Tensor>> FlatOptimizer::packed_of(int segment) const {
  const auto number = static_cast<std::size_t>(segment);
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (std::size_t which = 0; which < state_.size(); ++which) {
    all.emplace_back(state_names_[which], state_[which][number]);
  }
  if (masters_[number].defined()) all.emplace_back("master", masters_[number]);
  return all;
}

ShardCheck::Memory FlatOptimizer::own_state() const {
  ShardCheck::Memory memory;
  for (int number = 0; number < flat_.num_segments() && shards_->is_sharded(); ++number) {
    for (const auto& [name, packed] : packed_of(number)) memory.push_back(packed);
  }
  return memory;
}

void FlatOptimizer::expect_own_state() {
  const auto change = state_check_.find_change(own_state());
  if (!change) return;
  std::size_t piece = 0;
  for (int number = 0; number < flat_.num_segments(); ++number) {
    for (const auto& [name, packed] : packed_of(number)) {
      if (piece++ != change->piece) continue;
      const auto element = [width = packed.element_size()](std::int64_t byte) {
        return byte / width;
      };
      std::vector<std::string> names;
      for (const auto& run : shards_->runs(number)) {
        const auto first = std::max(run.packed_begin, element(change->begin));
        const auto end = std::min(run.packed_begin + run.count, element(change->end - 1) + 1);
        if (first >= end) continue;
        const auto begin = run.begin + first - run.packed_begin;
        names.push_back(flat_.names_of(number, begin, begin + end - first));
      }
      throw UsageError(fmt::format(
          "{}: {} of {} is not what {} wrote, and only this rank writes it: another process has "
          "written to the shared memory, or the memory is faulty. Resume from a checkpoint",
          kind_, name, fmt::join(names, ", "),
          packed.is_cpu() ? "the last step" : "one of the last steps"));
    }
  }
}

std::vector<std::pair<std::string, at::Tensor>> FlatOptimizer::named_tensors() {
  state_check_.forget();  // the caller may write to them
  follow_rebind();
  std::vector<std::pair<std::string, at::Tensor>> all;
  std::size_t index = 0;
  for (const auto& parameter : flat_.parameters()) {
    const auto& slot = parameter.slot;
    const auto& tensor = parameter.tensor;
    for (const auto& [name, packed] : packed_of(slot.segment)) {
      if (shards_->is_sharded() && tensor.is_contiguous()) continue;  // in sharded_tensors()
      const auto whole = shards_->is_sharded()
                             ? shards_->gather(slot.segment, packed, slot.begin, slot.count)
                             : packed.narrow(0, slot.begin, slot.count);
      all.emplace_back(parameter.name + "." + name,
                       whole.as_strided(tensor.sizes(), tensor.strides()));
    }
    const auto number = static_cast<std::size_t>(slot.segment);
    all.emplace_back(parameter.name + ".step",
                     steps_[number].select(0, index_in_segment_[index++]));
  }
  return all;
}

ShardedTensors FlatOptimizer::sharded_tensors() {
  state_check_.forget();  // as above
  follow_rebind();
  ShardedTensors all;
  for (const auto& parameter : flat_.parameters()) {
    if (!shards_->is_sharded() || !parameter.tensor.is_contiguous()) continue;
    const auto& slot = parameter.slot;
    for (const auto& [name, packed] : packed_of(slot.segment)) {
      auto& tensor = all.emplace_back(ShardedTensor{.name = parameter.name + "." + name,
                                                    .dtype = packed.scalar_type(),
                                                    .sizes = parameter.tensor.sizes().vec()});
      for (const auto& run : shards_->runs_within(slot.segment, slot.begin, slot.count)) {
        tensor.pieces.push_back(
            {run.begin - slot.begin, packed.narrow(0, run.packed_begin, run.count)});
      }
    }
  }
  return all;
}

void FlatOptimizer::load_tensors(const std::vector<std::pair<std::string, at::Tensor>>& loaded) {
  const std::map<std::string, at::Tensor> by_name(loaded.begin(), loaded.end());
  for (const auto& parameter : flat_.parameters()) {
    if (!shards_->is_sharded() || parameter.tensor.is_contiguous()) continue;
    const auto& slot = parameter.slot;
    for (const auto& [name, packed] : packed_of(slot.segment)) {
      const auto& whole = by_name.at(parameter.name + "." + name);
      const auto elements = whole.as_strided({slot.count}, {1});
      for (const auto& run : shards_->runs_within(slot.segment, slot.begin, slot.count)) {
        packed.narrow(0, run.packed_begin, run.count)
            .copy_(elements.narrow(0, run.begin - slot.begin, run.count));
      }
    }
  }
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
