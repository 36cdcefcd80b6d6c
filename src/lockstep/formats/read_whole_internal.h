// Reads a whole file with one of the readers, for the fuzz target and the test of mutated files.
// The file is either read correctly or refused with a UsageError.
#pragma once

#include <cstdint>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class Reader { tokens16, tokens32, llmc, idx, cifar, npy, npz, csv, text, jsonl, safetensors };
inline constexpr int kNumReaders = 11;

/// Returns a digest of the contents. Asserts the reader's guarantees. Throws UsageError.
[[nodiscard]] std::uint64_t read_whole(Reader reader, const FileBytes& file);

}  // namespace lockstep
