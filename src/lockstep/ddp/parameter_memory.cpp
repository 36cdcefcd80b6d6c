#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/ddp/parameter_memory_internal.h"

namespace lockstep {
namespace {

std::int64_t count_of(const ParameterMemory::StateRange& range) {
  return c10::multiply_integers(range.sizes);
}

at::ScalarType dtype_of(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  throw UsageError(fmt::format("the dtype {} is invalid; expected float32 or float64", name));
}

}  // namespace

at::Tensor ParameterMemory::Entry::tensor() const {
  if (!memory) return loaded;
  return memory->now.slice(0, range.begin, range.begin + count_of(range)).view(range.sizes);
}

ParameterMemory::LaidOut ParameterMemory::lay_out(int bucket, const std::vector<StateRange>& ranges,
                                                  std::int64_t length,
                                                  const at::TensorOptions& options) {
  const at::NoGradGuard off;
  LaidOut result{std::make_shared<Memory>(), {}};
  auto& memory = *result.memory;
  memory = {at::zeros({length}, options), at::zeros({length}, options)};
  for (const auto& range : ranges) {
    const auto found = entries_.find(range.name);
    if (found == entries_.end()) {
      result.fresh.push_back(range);
      continue;
    }
    const auto present = found->second.tensor();
    if (present.sizes() != at::IntArrayRef(range.sizes)) {
      throw UsageError(fmt::format(
          "the saved state of parameter {} has the shape [{}], this model needs [{}]; resume with "
          "the model and the options of the run that saved it, or use another folder",
          range.name, fmt::join(present.sizes(), ", "), fmt::join(range.sizes, ", ")));
    }
    memory.now.slice(0, range.begin, range.begin + count_of(range)).copy_(present.flatten());
  }
  for (const auto& range : ranges) entries_[range.name] = {result.memory, range};
  memories_[bucket] = result.memory;
  // Memory of earlier buckets that no parameter uses any more: only memories_ holds it.
  std::erase_if(memories_, [](const auto& item) { return item.second.use_count() == 1; });
  return result;
}

std::shared_ptr<ParameterMemory::Memory> ParameterMemory::of(int bucket) const {
  const auto found = memories_.find(bucket);
  return found == memories_.end() ? nullptr : found->second;
}

ParameterMemory::Tensors ParameterMemory::tensors() const {
  Tensors result;
  for (const auto& [name, entry] : entries_) result.emplace_back(name, entry.tensor());
  return result;
}

std::string ParameterMemory::shapes_json() const {
  auto shapes = nlohmann::json::object();
  for (const auto& [name, tensor] : tensors()) {
    shapes[name] = {{"dtype", tensor.scalar_type() == at::kDouble ? "float64" : "float32"},
                    {"sizes", tensor.sizes().vec()}};
  }
  return shapes.dump();
}

void ParameterMemory::load_shapes_json(const std::string& json) {
  std::map<std::string, Entry> loaded;
  try {
    const auto shapes = nlohmann::json::parse(json);
    for (const auto& [name, shape] : shapes.items()) {
      const auto sizes = shape.at("sizes").get<std::vector<std::int64_t>>();
      const auto dtype = dtype_of(shape.at("dtype").get<std::string>());
      loaded[name] = {nullptr, {name, sizes, 0}, at::zeros(sizes, dtype)};
    }
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("the state of a gradient hook is invalid: {}", error.what()));
  }
  entries_ = std::move(loaded);
  memories_.clear();
}

bool has_parameters(const GradientBucket& bucket, const std::vector<BucketParameter>& known) {
  return std::ranges::equal(
      bucket.parameters(), known, [](const BucketParameter& left, const BucketParameter& right) {
        return left.index == right.index && left.begin == right.begin && left.end == right.end;
      });
}

}  // namespace lockstep
