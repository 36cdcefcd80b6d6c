// Identifies the kind of a data file: by the magic number if the format has one, else by its name.
#pragma once

#include <string_view>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class FileKind {
  idx,          // by magic number, also in gzip
  npy,          // by magic number
  npz,          // .npz
  safetensors,  // .safetensors
  llmc_tokens,  // by magic number
  raw_tokens,   // .bin, .tok, .u16, .u32 without a magic number
  cifar,        // .bin of whole CIFAR records with valid labels
  csv,          // .csv, .tsv
  jsonl,        // .jsonl, .ndjson
  text,         // .txt, .md, or no known extension and no control characters in the first 4 KiB
  unknown,
};

/// Identifies a file. Reads its first bytes; for a .bin file with the size of CIFAR records, also
/// the labels.
[[nodiscard]] FileKind identify(const FileBytes& file);

/// "IDX array", "raw tokens" and so on.
[[nodiscard]] std::string_view file_kind_words(FileKind kind) noexcept;

}  // namespace lockstep
