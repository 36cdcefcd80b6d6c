// Fuzz target: any bytes as a safetensors file. Either they are refused with a UsageError, or the
// parser's guarantees hold. Any other exception is a crash.
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/safetensors_header.h"

namespace {

void check_promises(const lockstep::SafetensorsHeader& header, std::size_t file_bytes) {
  LOCKSTEP_ASSERT(header.data_offset <= file_bytes, "the data begins inside the file");
  std::uint64_t covered = 0;
  std::set<std::string> names;
  for (const auto& entry : header.entries) {
    LOCKSTEP_ASSERT(entry.begin == covered, "tensors are contiguous, without holes or overlaps");
    LOCKSTEP_ASSERT(entry.begin <= entry.end, "no tensor ends before it begins");
    LOCKSTEP_ASSERT(names.insert(entry.name).second, "names differ");
    LOCKSTEP_ASSERT(entry.name != "__metadata__", "the metadata is not a tensor");
    // Wide enough for the product of two factors below 2^64, so that this check cannot overflow.
    __extension__ using Wide = unsigned __int128;
    Wide bits = lockstep::safetensors_dtype_bits(entry.dtype);
    for (const std::uint64_t size : entry.shape) {
      bits *= size;
      LOCKSTEP_ASSERT(bits >> 64 == 0, "a tensor's bits fit 64 bits");
    }
    LOCKSTEP_ASSERT(bits == Wide{entry.end - entry.begin} * 8,
                    "shape and dtype match the number of bytes");
    covered = entry.end;
  }
  LOCKSTEP_ASSERT(covered == file_bytes - header.data_offset, "the tensors cover the data");
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
  try {
    check_promises(lockstep::parse_safetensors_file(std::as_bytes(std::span(data, size))), size);
  } catch (const lockstep::UsageError& error) {
    check_message(error.what());
  }
  return 0;
}
