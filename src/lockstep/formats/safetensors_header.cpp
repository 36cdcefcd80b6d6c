#include "lockstep/formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>
#include <utility>

#include "lockstep/formats/safetensors_json_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference

struct DtypeTraits {
  std::string_view name;
  std::uint64_t bits;
};
// In the order of SafetensorsDtype.
constexpr std::array<DtypeTraits, 22> kDtypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};
static_assert(kDtypes.size() == static_cast<std::size_t>(SafetensorsDtype::u64) + 1);

void check_range(const SafetensorsEntry& entry, std::uint64_t data_bytes) {
  if (entry.begin <= entry.end && entry.end <= data_bytes) return;
  refuse_safetensors(
      fmt::format("tensor {} takes the bytes [{}, {}), expected a range in the file's {} bytes "
                  "of data",
                  shown(entry.name), entry.begin, entry.end, data_bytes));
}

// All sizes are checked for overflow, even if one is zero and the tensor is empty, because the
// caller computes strides from them.
std::uint64_t checked_bytes(const SafetensorsEntry& entry) {
  std::uint64_t bits = safetensors_dtype_bits(entry.dtype);
  bool is_empty = false;
  for (const std::uint64_t size : entry.shape) {
    if (size == 0) {
      is_empty = true;
    } else if (__builtin_mul_overflow(bits, size, &bits)) {
      refuse_safetensors(
          fmt::format("the shape [{}] of tensor {} overflows, expected fewer than 2^64 bits",
                      fmt::join(entry.shape, ", "), shown(entry.name)));
    }
  }
  if (is_empty) return 0;
  if (bits % 8 != 0) {
    refuse_safetensors(
        fmt::format("tensor {} ends within a byte: {} of shape [{}] has {} bits, expected a "
                    "multiple of 8",
                    shown(entry.name), safetensors_dtype_name(entry.dtype),
                    fmt::join(entry.shape, ", "), bits));
  }
  return bits / 8;
}

void check_size(const SafetensorsEntry& entry) {
  const std::uint64_t bytes = checked_bytes(entry);
  if (bytes == entry.end - entry.begin) return;
  refuse_safetensors(
      fmt::format("tensor {} takes {} bytes of data, expected {} for {} of shape [{}]",
                  shown(entry.name), entry.end - entry.begin, bytes,
                  safetensors_dtype_name(entry.dtype), fmt::join(entry.shape, ", ")));
}

// Sorts by hash, and by name only if hashes are equal: fast for ordinary files and, unlike a hash
// table, not slow for names that were chosen to collide.
void check_names_differ(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::pair<std::size_t, std::uint32_t>> order(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    order[i] = {std::hash<std::string>{}(entries[i].name), static_cast<std::uint32_t>(i)};
  }
  std::sort(order.begin(), order.end(), [&](const auto& left, const auto& right) {
    if (left.first != right.first) return left.first < right.first;
    return entries[left.second].name < entries[right.second].name;
  });
  const auto twice =
      std::adjacent_find(order.begin(), order.end(), [&](const auto& left, const auto& right) {
        return left.first == right.first && entries[left.second].name == entries[right.second].name;
      });
  if (twice != order.end()) {
    refuse_safetensors(fmt::format("tensor {} appears twice, expected each name once",
                                   shown(entries[twice->second].name)));
  }
}

void sort_by_offset(std::vector<SafetensorsEntry>& entries) {
  const auto before = [](const SafetensorsEntry& left, const SafetensorsEntry& right) {
    return std::tie(left.begin, left.end, left.name) < std::tie(right.begin, right.end, right.name);
  };
  if (std::is_sorted(entries.begin(), entries.end(), before)) return;
  std::sort(entries.begin(), entries.end(), before);
}

void check_no_hole(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      refuse_safetensors(
          fmt::format("tensor {} begins at byte {} of the data, expected {}, where the previous "
                      "tensor ends",
                      shown(entry.name), entry.begin, covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    refuse_safetensors(
        fmt::format("the tensors end at byte {} of the data, expected {}, where the file ends",
                    covered, data_bytes));
  }
}

// A hint for the most likely wrong file: one written by torch.save.
std::string_view pickle_hint(std::span<const std::byte> first_bytes) {
  const bool is_zip = first_bytes[0] == std::byte{'P'} && first_bytes[1] == std::byte{'K'};
  const bool is_pickle = first_bytes[0] == std::byte{0x80};
  if (!is_zip && !is_pickle) return "";
  return " (it looks like a pickle or zip file of torch.save, which lockstep never opens: load it "
         "in Python and save it with safetensors.torch.save_file)";
}

}  // namespace

std::string_view safetensors_dtype_name(SafetensorsDtype dtype) noexcept {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

std::uint64_t safetensors_dtype_bits(SafetensorsDtype dtype) noexcept {
  return kDtypes[static_cast<std::size_t>(dtype)].bits;
}

std::optional<SafetensorsDtype> try_safetensors_dtype(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == name) return static_cast<SafetensorsDtype>(i);
  }
  return std::nullopt;
}

std::uint64_t safetensors_header_length(std::span<const std::byte> first_bytes,
                                        std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    refuse_safetensors(fmt::format("the file has {} bytes, expected at least {}",
                                   std::min<std::uint64_t>(file_bytes, first_bytes.size()),
                                   kLengthBytes));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(first_bytes[i]);
  }
  if (length > kMaxHeaderBytes) {
    refuse_safetensors(fmt::format("its length is given as {}, expected at most {}{}", length,
                                   kMaxHeaderBytes, pickle_hint(first_bytes)));
  }
  if (length > file_bytes - kLengthBytes) {
    refuse_safetensors(
        fmt::format("its length is given as {}, expected at most {} in a file of {} bytes", length,
                    file_bytes - kLengthBytes, file_bytes));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> json,
                                           std::uint64_t data_bytes) {
  if (json.size() > kMaxHeaderBytes) {
    refuse_safetensors(
        fmt::format("it has {} bytes, expected at most {}", json.size(), kMaxHeaderBytes));
  }
  SafetensorsHeader header =
      read_safetensors_json({reinterpret_cast<const char*>(json.data()), json.size()});
  for (const SafetensorsEntry& entry : header.entries) {
    check_range(entry, data_bytes);
    check_size(entry);
  }
  check_names_differ(header.entries);
  sort_by_offset(header.entries);
  check_no_hole(header.entries, data_bytes);
  header.data_offset = kLengthBytes + json.size();
  return header;
}

SafetensorsHeader parse_safetensors_file(std::span<const std::byte> file) {
  const std::uint64_t length = safetensors_header_length(file, file.size());
  const auto after_length = file.subspan(kLengthBytes);
  return parse_safetensors_header(after_length.first(length), after_length.size() - length);
}

}  // namespace lockstep
