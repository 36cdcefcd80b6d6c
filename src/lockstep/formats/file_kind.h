// What a data file is: by its magic where the format has one, else by its name.
#pragma once

#include <string_view>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class FileKind {
  idx,          // by magic, also in gzip
  npy,          // by magic
  npz,          // .npz
  safetensors,  // .safetensors
  llmc_tokens,  // by magic
  raw_tokens,   // .bin, .tok, .u16, .u32 without one
  cifar,        // .bin of whole CIFAR records whose labels are in range
  csv,          // .csv, .tsv
  jsonl,        // .jsonl, .ndjson
  text,         // .txt, .md, or no known ending and valid UTF-8 without NUL at its start
  unknown,
};

/// Reads the first bytes, and of a .bin file of fitting size the labels.
[[nodiscard]] FileKind identify(const FileBytes& file);

/// "IDX array", "raw tokens" and so on.
[[nodiscard]] std::string_view file_kind_words(FileKind kind) noexcept;

}  // namespace lockstep
