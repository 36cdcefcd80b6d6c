#include "lockstep/checkpoint/loading.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/checkpoint/tensor_entry_internal.h"
#include "lockstep/collectives/shared_region.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostNamed = 8;

std::map<std::string_view, const SafetensorsEntry*> by_name(const SafetensorsFile& file) {
  std::map<std::string_view, const SafetensorsEntry*> entries;
  for (const auto& entry : file.header().entries) entries.emplace(entry.name, &entry);
  return entries;
}

// "missing in the checkpoint: a, b and 3 more".
void add_list(std::vector<std::string>& clauses, std::string_view what,
              const std::vector<std::string>& names) {
  if (names.empty()) return;
  const auto shown = std::min(names.size(), kMostNamed);
  auto text = fmt::format(
      "{}: {}", what,
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  clauses.push_back(std::move(text));
}

std::span<const std::byte> bytes_of(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  return file.file().bytes().subspan(file.header().data_offset + entry.begin,
                                     entry.end - entry.begin);
}

// A copy, because the bytes of a file may not be aligned as LibTorch requires.
at::Tensor tensor_of(std::span<const std::byte> bytes, SafetensorsDtype dtype,
                     at::IntArrayRef sizes) {
  auto tensor = at::empty(sizes, scalar_type_of(dtype));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

// `bytes` are all elements of `to`, in row-major order.
void copy(std::span<const std::byte> bytes, SafetensorsDtype dtype, const at::Tensor& to) {
  auto target = shared_memory_of(to.detach());  // one copy for all ranks: all write the same bytes
  if (target.is_cpu() && target.is_contiguous()) {
    std::memcpy(target.mutable_data_ptr(), bytes.data(), bytes.size());
  } else {
    target.copy_(tensor_of(bytes, dtype, target.sizes()));
  }
}

}  // namespace

std::vector<std::string> differences(const SafetensorsFile& file, const NamedTensors& tensors,
                                     const ShardedTensors& sharded) {
  auto saved = by_name(file);
  std::vector<SafetensorsEntry> wanted;
  for (const auto& [name, tensor] : tensors) wanted.push_back(entry_of(name, tensor));
  for (const auto& each : sharded) wanted.push_back(entry_of(each.name, each.dtype, each.sizes));
  std::vector<std::string> missing;
  std::vector<std::string> different;
  for (const auto& ours : wanted) {
    const auto found = saved.find(ours.name);
    if (found == saved.end()) {
      missing.push_back(in_quotes(ours.name));
      continue;
    }
    if (ours.dtype != found->second->dtype || ours.shape != found->second->shape) {
      different.push_back(fmt::format("{} is {} in the checkpoint and {} in this run",
                                      in_quotes(ours.name), kind_words(*found->second),
                                      kind_words(ours)));
    }
    saved.erase(found);
  }
  std::vector<std::string> unknown;
  for (const auto& [name, entry] : saved) unknown.push_back(in_quotes(name));
  std::vector<std::string> clauses;
  add_list(clauses, "missing in the checkpoint", missing);
  add_list(clauses, "only in the checkpoint", unknown);
  add_list(clauses, "different", different);
  return clauses;
}

void copy_into(const NamedTensors& tensors, const SafetensorsFile& file) {
  const at::NoGradGuard no_grad;
  const auto saved = by_name(file);
  for (const auto& [name, tensor] : tensors) {
    const auto& entry = *saved.at(name);
    const auto bytes = bytes_of(file, entry);
    if (bytes.empty()) continue;
    copy(bytes, entry.dtype, tensor);
  }
}

void copy_into(const ShardedTensors& sharded, const SafetensorsFile& file) {
  const at::NoGradGuard no_grad;
  const auto saved = by_name(file);
  for (const auto& each : sharded) {
    const auto& entry = *saved.at(each.name);
    const auto bytes = bytes_of(file, entry);
    for (const auto& [begin, values] : each.pieces) {
      const auto skipped = static_cast<std::size_t>(begin) * values.element_size();
      if (begin < 0 || values.scalar_type() != each.dtype || skipped > bytes.size() ||
          values.nbytes() > bytes.size() - skipped) {
        throw UsageError(fmt::format(
            "sharded_tensors() has a piece of {} with {} elements of {} from {} on, but the tensor "
            "is {}",
            in_quotes(each.name), values.numel(), c10::toString(values.scalar_type()), begin,
            kind_words(entry)));
      }
      if (values.numel() > 0) copy(bytes.subspan(skipped, values.nbytes()), entry.dtype, values);
    }
  }
}

at::Tensor read_tensor(const SafetensorsFile& file, std::string_view name) {
  const auto saved = by_name(file);
  const auto found = saved.find(name);
  if (found == saved.end()) {
    throw UsageError(fmt::format("{} has no tensor {}", file.file().name(), in_quotes(name)));
  }
  const auto& entry = *found->second;
  const std::vector<std::int64_t> sizes(entry.shape.begin(), entry.shape.end());
  return tensor_of(bytes_of(file, entry), entry.dtype, sizes);
}

}  // namespace lockstep
