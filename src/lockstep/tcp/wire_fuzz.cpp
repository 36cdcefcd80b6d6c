// Fuzz target: arbitrary bytes as what another process sends. They are refused, or encode to the
// same bytes again; everything else, including an exception other than UsageError, is a crash.
//
// Input: one byte that selects a parser, then its bytes: 0 a hello, 1 a header of data, 2 the same
// with a checksum that matches, 3 a message of a group, 4 the address of a rank.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "lockstep/base/assert.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/network_message.h"
#include "lockstep/tcp/wire.h"

namespace {

using View = std::span<const std::byte>;

template <typename Decoded>
void expect_one_encoding(const Decoded& decoded, View bytes) {
  if (!decoded) return;
  LOCKSTEP_ASSERT(std::ranges::equal(lockstep::encode(*decoded), bytes), "one encoding");
}

void check_header(View input, bool fix_checksum) {
  lockstep::DataHeaderBytes bytes{};
  std::copy_n(input.begin(), std::min(input.size(), bytes.size()), bytes.begin());
  if (fix_checksum) {
    constexpr std::size_t kChecked = lockstep::kDataHeaderBytes - 4;
    const auto checksum = lockstep::crc32c(std::span(bytes).first<kChecked>());
    std::memcpy(bytes.data() + kChecked, &checksum, sizeof(checksum));
  }
  const auto header = lockstep::try_decode_header(bytes);
  expect_one_encoding(header, bytes);
  LOCKSTEP_ASSERT(!header || header->length <= lockstep::kMaxDataBytes, "a frame is bounded");
}

void check_address(const std::string& text) {
  try {
    const auto address = lockstep::parse_rank_address(text);
    LOCKSTEP_ASSERT(lockstep::parse_rank_address(to_string(address)) == address, "one meaning");
  } catch (const lockstep::UsageError&) {
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 5) {
    case 0:
      expect_one_encoding(lockstep::try_decode_hello(bytes), bytes);
      break;
    case 1:
    case 2:
      check_header(bytes, data[0] % 5 == 2);
      break;
    case 3:
      expect_one_encoding(lockstep::try_decode(bytes), bytes);
      break;
    default:
      check_address({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return 0;
}
