#include "lockstep/metrics/csv_writer.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr std::string_view kStep = "step";

// The contents of the file; empty when it does not exist.
std::string contents(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad()) throw SystemError("cannot read " + path, errno);
  return std::move(text).str();
}

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> fields;
  for (;;) {
    const auto comma = line.find(',');
    fields.emplace_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

std::string header_of(const std::vector<std::string>& columns) {
  std::string line(kStep);
  for (const auto& column : columns) line += "," + column;
  return line + "\n";
}

std::optional<std::int64_t> step_of(std::string_view row) {
  std::int64_t step = 0;
  const auto end = row.data() + std::min(row.find(','), row.size());
  const auto [stopped, failure] = std::from_chars(row.data(), end, step);
  if (failure != std::errc{} || stopped != end) return std::nullopt;
  return step;
}

// The complete lines of `text`, without line ends.
std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

}  // namespace

CsvWriter::CsvWriter(std::string path, const CsvOptions& options) : path_(std::move(path)) {
  const auto before = contents(path_);
  const auto lines = whole_lines(before);
  if (lines.empty()) return;
  columns_ = split(lines.front());
  if (columns_.front() != kStep) {
    throw UsageError(fmt::format(
        "{} begins with {}, not with the column step: it is not a table of this program. "
        "Move it, or use another folder.",
        path_, in_quotes(lines.front())));
  }
  columns_.erase(columns_.begin());
  for (auto& column : columns_) {
    const auto found = options.renamed.find(column);
    if (found != options.renamed.end()) column = found->second;
  }
  auto kept = header_of(columns_);
  for (const auto row : std::span(lines).subspan(1)) {
    const auto step = step_of(row);
    if (!step) {
      throw UsageError(fmt::format(
          "{} has the row {}, which does not begin with a step: move the file, or correct it.",
          path_, in_quotes(row)));
    }
    if (*step <= options.last_step) kept += std::string(row) + "\n";
  }
  if (kept != before) replace(kept);
  file_ = FileDescriptor::open(path_, O_WRONLY | O_APPEND);
}

void CsvWriter::row(std::int64_t step, std::span<const Cell> cells) {
  add_columns(cells);
  auto line = fmt::format("{}", step);
  for (const auto& column : columns_) {
    const auto cell = std::ranges::find(cells, column, &Cell::first);
    line += cell == cells.end() ? "," : fmt::format(",{}", cell->second);
  }
  line += "\n";
  write_all(file_.number(), std::as_bytes(std::span(line)), path_);
}

void CsvWriter::add_columns(std::span<const Cell> cells) {
  const auto num_before = columns_.size();
  for (const auto& [name, value] : cells) {
    if (std::ranges::find(columns_, name) == columns_.end()) columns_.push_back(name);
  }
  if (file_ && columns_.size() == num_before) return;
  auto text = header_of(columns_);
  const auto before = contents(path_);
  const auto lines = whole_lines(before);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    text += std::string(lines[i]) + std::string(columns_.size() - num_before, ',') + "\n";
  }
  replace(text);
  file_ = FileDescriptor::open(path_, O_WRONLY | O_APPEND);
}

void CsvWriter::replace(const std::string& text) {
  const auto draft = path_ + ".tmp";
  {
    const auto file = FileDescriptor::open(draft, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(file.number(), std::as_bytes(std::span(text)), draft);
  }
  if (std::rename(draft.c_str(), path_.c_str()) != 0) {
    throw SystemError(fmt::format("cannot rename {} to {}", draft, path_), errno);
  }
}

}  // namespace lockstep
