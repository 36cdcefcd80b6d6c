// Comma-separated values as in RFC 4180: fields can be quoted with double quotes, a quote inside is
// doubled, lines end with LF or CRLF, every row has as many fields as the first. The file is
// mapped; the constructor reads it once to find the rows (8 bytes of memory per row).
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
  detect,     // the first row has names if none of its fields is a number
  first_row,  // the first row has names
  none,
};

struct CsvOptions {
  char delimiter = ',';
  CsvHeader header = CsvHeader::detect;
};

class CsvFile {
 public:
  /// Throws UsageError, with line and offset, for an invalid file.
  explicit CsvFile(FileBytes file, CsvOptions options = {});

  /// The fields of `row`, without their quotes.
  [[nodiscard]] std::vector<std::string> fields(std::uint64_t row) const;

  /// The fields of `row` as numbers; spaces around them are allowed. `out` has num_columns()
  /// elements. Throws UsageError, with line and column, for a field that is not a number.
  void numbers(std::uint64_t row, std::span<double> out) const;

  [[nodiscard]] std::uint64_t num_rows() const noexcept { return row_offsets_.size(); }
  [[nodiscard]] std::uint64_t num_columns() const noexcept { return num_columns_; }
  /// Empty if the file has no names.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// "column 3 (petal width)".
  [[nodiscard]] std::string column_words(std::uint64_t column) const;
  [[nodiscard]] const FileBytes& file() const noexcept { return file_; }

 private:
  // Reads the row at `at` into fields and moves `at` to the next row.
  void read_row(std::uint64_t& at, std::vector<std::string>& fields) const;

  FileBytes file_;
  char delimiter_;
  std::uint64_t num_columns_ = 0;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> row_offsets_;
};

/// Parses `text` as a number, ignoring spaces around it; empty if it is not a number.
[[nodiscard]] std::optional<double> try_number(std::string_view text) noexcept;

}  // namespace lockstep
