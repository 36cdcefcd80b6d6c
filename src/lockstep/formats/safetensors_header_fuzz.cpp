// Fuzz target: any bytes as a safetensors file. They are refused with a UsageError, or what the
// reader promises of a header holds; everything else, another exception too, is a crash.
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
    LOCKSTEP_ASSERT(entry.begin == covered, "tensors follow each other without hole or overlap");
    LOCKSTEP_ASSERT(entry.begin <= entry.end, "no tensor ends before it begins");
    LOCKSTEP_ASSERT(names.insert(entry.name).second, "names differ");
    LOCKSTEP_ASSERT(entry.name != "__metadata__", "the metadata is no tensor");
    // Wide enough for any two factors below 2^64, so this check cannot overflow as the parser's
    // might.
    __extension__ using Wide = unsigned __int128;
    Wide bits = lockstep::safetensors_dtype_bits(entry.dtype);
    for (const std::uint64_t size : entry.shape) {
      bits *= size;
      LOCKSTEP_ASSERT(bits >> 64 == 0, "a tensor's bits fit 64 bits");
    }
    LOCKSTEP_ASSERT(bits == Wide{entry.end - entry.begin} * 8, "the shape fills the bytes exactly");
    covered = entry.end;
  }
  LOCKSTEP_ASSERT(covered == file_bytes - header.data_offset, "the tensors cover the data");
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
  try {
    check_promises(lockstep::parse_safetensors_file(std::as_bytes(std::span(data, size))), size);
  } catch (const lockstep::UsageError& error) {
    check_message(error.what());
  }
  return 0;
}
