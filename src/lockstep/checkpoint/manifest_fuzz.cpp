// Fuzz target: any bytes as a manifest; when the first is odd, under a digest that fits them, so
// that the fields are reached. Refused with a UsageError whose message is short and plain, or read
// into what is written as the same manifest again.
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
  LOCKSTEP_ASSERT(message.size() < 4096, "a message stays short however long the file's text is");
  for (const char c : message) {
    LOCKSTEP_ASSERT(c >= 0x20 && c < 0x7f, "a message holds no byte that a terminal would obey");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  try {
    const auto manifest = lockstep::manifest_from_text(text_of({data, size}));
    const auto again = lockstep::manifest_from_text(lockstep::to_text(manifest));
    LOCKSTEP_ASSERT(again == manifest, "a manifest is written as it was read");
  } catch (const lockstep::UsageError& error) {
    check_message(error.what());
  }
  return 0;
}
