// Reads everything that a reader offers of a file, for the fuzz target and the test of mutated
// files: what is read is right, or refused with a UsageError; nothing else may happen.
#pragma once

#include <cstdint>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class Reader { tokens16, tokens32, llmc, idx, cifar, npy, npz, csv, text, jsonl, safetensors };
inline constexpr int kNumReaders = 11;

/// Returns a digest of all that was read. Asserts what the reader promises. Throws UsageError.
[[nodiscard]] std::uint64_t read_whole(Reader reader, const FileBytes& file);

}  // namespace lockstep
