// What `lockstep data inspect` says of a file.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/formats/file_bytes.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep::cli {

struct ReportOptions {
  FileKind kind = FileKind::unknown;  // unknown: found out
  bool tokens_of_4_bytes = false;     // for raw tokens, which do not say
  std::uint64_t num_samples = 3;      // how many of the first samples are shown
  Tokenizer* tokenizer = nullptr;     // shows tokens as text; borrowed
};

/// Several lines: what the file is, how many samples of what shape or length, classes with their
/// counts, the first samples, the data id. Throws UsageError when the file is damaged or unknown.
[[nodiscard]] std::string file_report(const FileBytes& file, const ReportOptions& options);

}  // namespace lockstep::cli
