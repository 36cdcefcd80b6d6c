// A table of numbers as comma-separated values: a line of column names, then one line per step. The
// first column is the step. The table is a view for spreadsheets; metrics.jsonl is the record.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

struct CsvOptions {
  std::int64_t last_step = -1;  // rows of later steps are removed: a resumed run writes them again
  std::map<std::string, std::string> renamed = {};  // new names of columns, by their old names
};

class CsvWriter {
 public:
  using Cell = std::pair<std::string, double>;  // name of the column, value

  /// Opens `path`, or creates it with the first row. Removes from an existing table the rows after
  /// options.last_step and a truncated last row, and renames its columns. Throws SystemError, and
  /// UsageError for a file that is not such a table.
  explicit CsvWriter(std::string path, const CsvOptions& options = {});

  /// Appends a row; it is in the file when this returns. The columns are those of the first row. A
  /// column without a value in `cells` stays empty. A new name becomes the last column, and the
  /// file is rewritten once. NaN and infinities are written as nan and inf. Names contain no comma,
  /// quote or line end. One thread at a time. Throws SystemError.
  void row(std::int64_t step, std::span<const Cell> cells);

 private:
  void add_columns(std::span<const Cell> cells);
  void replace(const std::string& text);

  std::string path_;
  std::vector<std::string> columns_;  // without the step
  FileDescriptor file_;               // open once the file exists
};

}  // namespace lockstep
