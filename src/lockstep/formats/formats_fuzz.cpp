// Fuzz target: the first byte selects a reader, the other bytes are the file. Either the file is
// refused with a UsageError whose message is short and printable, or it is read completely and the
// reader's guarantees hold.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/read_whole_internal.h"

namespace {

void check_message(const std::string& message) {
  LOCKSTEP_ASSERT(message.size() < 8192, "a message is short for any length of the file's text");
  for (const char c : message) {
    LOCKSTEP_ASSERT(c >= 0x20 && c < 0x7f, "a message has no control characters");
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto reader = static_cast<lockstep::Reader>(data[0] % lockstep::kNumReaders);
  const auto bytes = std::as_bytes(std::span(data, size).subspan(1));
  const auto file =
      lockstep::FileBytes::of("fuzz.bin", std::vector<std::byte>(bytes.begin(), bytes.end()));
  (void)lockstep::identify(file);
  try {
    (void)lockstep::read_whole(reader, file);
  } catch (const lockstep::UsageError& error) {
    check_message(error.what());
  }
  return 0;
}
