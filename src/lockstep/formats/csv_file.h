// Comma-separated values as RFC 4180 has them: fields may stand in double quotes, a quote in them
// is doubled, lines end in LF or CRLF, every row has as many fields as the first. Mapped; opening
// reads the file once to learn where rows begin (8 bytes of memory a row).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

enum class CsvHeader {
  detect,     // the first row is names when none of its fields is a number
  first_row,  // names
  none,
};

struct CsvOptions {
  char delimiter = ',';
  CsvHeader header = CsvHeader::detect;
};

class CsvFile {
 public:
  /// Throws UsageError, with line and offset, for a file that is not as above.
  explicit CsvFile(FileBytes file, CsvOptions options = {});

  /// The fields of `row`, without their quotes.
  [[nodiscard]] std::vector<std::string> fields(std::uint64_t row) const;

  /// The fields of `row` as numbers; spaces around them are allowed. `out` has num_columns()
  /// places. Throws UsageError with line and column for a field that is no number.
  void numbers(std::uint64_t row, std::span<double> out) const;

  [[nodiscard]] std::uint64_t num_rows() const noexcept { return row_offsets_.size(); }
  [[nodiscard]] std::uint64_t num_columns() const noexcept { return num_columns_; }
  /// Empty when the file has no names.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// "column 3 (petal width)".
  [[nodiscard]] std::string column_words(std::uint64_t column) const;
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  // Reads the row at `at` into fields and moves `at` past its line end.
  void read_row(std::uint64_t& at, std::vector<std::string>& fields) const;

  FileBytes file_;
  char delimiter_;
  std::uint64_t num_columns_ = 0;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> row_offsets_;
};

/// The number that is all of `text` but for spaces around it; nothing if it is none.
[[nodiscard]] std::optional<double> try_number(std::string_view text) noexcept;

}  // namespace lockstep
