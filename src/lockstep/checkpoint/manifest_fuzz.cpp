// Fuzz target: any bytes as a manifest. If the first byte is odd, a matching digest is appended, so
// that the parser reaches the fields. Either the bytes are refused with a UsageError whose message
// is short and printable, or writing the parsed manifest and reading it again gives an equal one.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/kernels/digest.h"

namespace {

std::string text_of(std::span<const std::uint8_t> input) {
  std::string body(reinterpret_cast<const char*>(input.data()) + 1, input.size() - 1);
  if (input[0] % 2 == 0) return body;
  return body + fmt::format(",\n \"manifest_digest\": \"{:016x}\"\n}}\n",
                            lockstep::digest(std::as_bytes(std::span(body))));
}

void check_message(const std::string& message) {
  LOCKSTEP_ASSERT(message.size() < 4096, "a message is short for any length of the file's text");
  for (const char c : message) {
    LOCKSTEP_ASSERT(c >= 0x20 && c < 0x7f, "a message has no control characters");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const auto manifest = lockstep::manifest_from_text(text_of({data, size}));
    const auto again = lockstep::manifest_from_text(lockstep::to_text(manifest));
    LOCKSTEP_ASSERT(again == manifest, "writing and reading preserves a manifest");
  } catch (const lockstep::UsageError& error) {
    check_message(error.what());
  }
  return 0;
}
