#include "lockstep/base/crc32c.h"

#include "lockstep/base/crc32c_internal.h"

namespace lockstep {
namespace {

using Bytes = std::span<const std::byte>;

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    auto crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0);
    table[byte] = crc;
  }
  return table;
}();

std::uint32_t by_table(Bytes bytes, std::uint32_t crc) noexcept {
  for (const auto byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xFF];
  }
  return crc;
}

// Without instructions for it.
void add_words_by_table(const std::byte* bytes, std::size_t stride, std::size_t num_words,
                        ThirdsCrc& crcs) noexcept {
  for (std::size_t i = 0; i < crcs.size(); ++i) {
    crcs[i] = by_table({bytes + i * stride, num_words * 8}, crcs[i]);
  }
}

const AddWords kFastest = find_add_words();
const AddWords kAddWords = kFastest != nullptr ? kFastest : add_words_by_table;

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept { return ~by_table(bytes, ~0U); }

std::array<std::uint32_t, 3> crc32c_of_thirds(std::span<const std::byte> bytes) noexcept {
  ThirdsCrc crcs{~0U, ~0U, ~0U};
  const auto third = bytes.size() / 3 / 8 * 8;
  kAddWords(bytes.data(), third, third / 8, crcs);
  crcs[2] = by_table(bytes.subspan(3 * third), crcs[2]);
  for (auto& crc : crcs) crc = ~crc;
  return crcs;
}

}  // namespace lockstep
