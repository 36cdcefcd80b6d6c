// The report of `lockstep data inspect` about a file.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/formats/file_bytes.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep::cli {

struct ReportOptions {
  FileKind kind = FileKind::unknown;  // unknown: detected
  bool tokens_of_4_bytes = false;     // of raw tokens, whose width is not in the file
  std::uint64_t num_samples = 3;      // number of samples to show
  Tokenizer* tokenizer = nullptr;     // shows tokens as text; borrowed
};

/// Several lines: format, number and shape or length of samples, classes with their counts, the
/// first samples, data id. Throws UsageError when the file is damaged or of an unknown format.
[[nodiscard]] std::string file_report(const FileBytes& file, const ReportOptions& options);

}  // namespace lockstep::cli
