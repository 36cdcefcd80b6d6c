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
at::Tensor tensor_of(std::span<const std::byte> bytes, const SafetensorsEntry& entry) {
  std::vector<std::int64_t> sizes;
  for (const auto size : entry.shape) sizes.push_back(static_cast<std::int64_t>(size));
  auto tensor = at::empty(sizes, scalar_type_of(entry.dtype));
  if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace

std::vector<std::string> differences(const SafetensorsFile& file, const NamedTensors& tensors) {
  auto saved = by_name(file);
  std::vector<std::string> missing;
  std::vector<std::string> different;
  for (const auto& [name, tensor] : tensors) {
    const auto found = saved.find(name);
    if (found == saved.end()) {
      missing.push_back(in_quotes(name));
      continue;
    }
    const auto ours = entry_of(name, tensor);
    if (ours.dtype != found->second->dtype || ours.shape != found->second->shape) {
      different.push_back(fmt::format("{} is {} in the checkpoint and {} in this run",
                                      in_quotes(name), kind_words(*found->second),
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
    auto target = tensor.detach();
    if (target.is_cpu() && target.is_contiguous()) {
      std::memcpy(target.mutable_data_ptr(), bytes.data(), bytes.size());
    } else {
      target.copy_(tensor_of(bytes, entry));
    }
  }
}

at::Tensor read_tensor(const SafetensorsFile& file, std::string_view name) {
  const auto saved = by_name(file);
  const auto found = saved.find(name);
  if (found == saved.end()) {
    throw UsageError(fmt::format("{} has no tensor {}", file.file().name(), in_quotes(name)));
  }
  return tensor_of(bytes_of(file, *found->second), *found->second);
}

}  // namespace lockstep
