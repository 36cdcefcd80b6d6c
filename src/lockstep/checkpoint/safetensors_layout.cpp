#include "lockstep/checkpoint/safetensors_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 8;
constexpr std::string_view kMetadata = "__metadata__";

std::vector<std::size_t> order_of(const std::vector<SafetensorsEntry>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t left, std::size_t right) {
    const auto& a = tensors[left];
    const auto& b = tensors[right];
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  return order;
}

void check_names(const std::vector<SafetensorsEntry>& tensors) {
  std::vector<std::string_view> names;
  for (const auto& tensor : tensors) names.emplace_back(tensor.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    throw UsageError(
        fmt::format("two tensors have the name {}; names must be unique", in_quotes(*twice)));
  }
  if (std::ranges::binary_search(names, kMetadata)) {
    throw UsageError("the tensor name __metadata__ is reserved in safetensors files; rename it");
  }
}

std::uint64_t bytes_of(const SafetensorsEntry& tensor) {
  std::uint64_t bits = safetensors_dtype_bits(tensor.dtype);
  for (const auto size : tensor.shape) {
    if (__builtin_mul_overflow(bits, size, &bits)) {
      throw UsageError(fmt::format("tensor {} is too large for a file", in_quotes(tensor.name)));
    }
  }
  return bits / 8;
}

std::string header_text(const SafetensorsLayout& layout,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  // ordered_json finds a key by linear search, so tensors are written without it: a model may have
  // ten thousand of them.
  std::string text = header.dump();
  text.pop_back();
  try {
    for (const auto& entry : layout.entries) {
      if (text.size() > 1) text += ',';
      text += nlohmann::json(entry.name).dump();
      text += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          safetensors_dtype_name(entry.dtype), fmt::join(entry.shape, ","),
                          entry.begin, entry.end);
    }
  } catch (const nlohmann::json::exception&) {
    throw UsageError("the name of a tensor is not valid UTF-8, which safetensors requires");
  }
  return text + '}';
}

}  // namespace

SafetensorsLayout lay_out_safetensors(const std::vector<SafetensorsEntry>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  check_names(tensors);
  SafetensorsLayout layout;
  layout.sources = order_of(tensors);
  for (const auto source : layout.sources) {
    auto entry = tensors[source];
    entry.begin = layout.data_bytes;
    layout.data_bytes += bytes_of(entry);
    entry.end = layout.data_bytes;
    layout.entries.push_back(std::move(entry));
  }
  auto text = header_text(layout, metadata);
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t length = text.size();
  layout.head.resize(sizeof length + text.size());
  std::memcpy(layout.head.data(), &length, sizeof length);  // this machine is little-endian
  std::memcpy(layout.head.data() + sizeof length, text.data(), text.size());
  return layout;
}

}  // namespace lockstep
