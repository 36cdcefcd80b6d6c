// A table of numbers as comma-separated values: a line of column names, then a line a step. The
// first column is the step. A view for spreadsheets; what must not be lost is elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class CsvWriter {
 public:
  using Cell = std::pair<std::string, double>;  // name of the column, value

  /// Opens `path` or makes it. Of a table that is there, rows of steps above `last_step` go, and so
  /// does a row that was cut off: a resumed run writes them again. Throws SystemError, and
  /// UsageError for a file that is no such table.
  CsvWriter(std::string path, std::int64_t last_step);

  /// Appends a row; it is in the file when this returns. Columns are those of the first row; a
  /// column that `cells` has not stays empty, and a name that is no column yet becomes the last one
  /// (the file is then written anew, once). NaN and infinities are written as nan and inf. Names
  /// have no comma, quote or line end. One thread at a time. Throws SystemError.
  void row(std::int64_t step, std::span<const Cell> cells);

 private:
  void add_columns(std::span<const Cell> cells);
  void replace(const std::string& text);

  std::string path_;
  std::vector<std::string> columns_;  // without the step
  FileDescriptor file_;               // open once there are columns
};

}  // namespace lockstep
