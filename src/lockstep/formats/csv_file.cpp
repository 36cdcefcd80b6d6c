#include "lockstep/formats/csv_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/quote.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::size_t kMaxColumns = 1u << 20;

std::uint64_t line_of(const FileBytes& file, std::uint64_t offset) {
  const auto before = file.text().substr(0, offset);
  return 1 + static_cast<std::uint64_t>(std::ranges::count(before, '\n'));
}

[[noreturn]] void refuse_line(const FileBytes& file, std::uint64_t offset, std::string_view why) {
  refuse(file, offset, fmt::format("line {}: {}", line_of(file, offset), why));
}

bool at_line_end(std::string_view text, std::uint64_t at) {
  return at >= text.size() || text[at] == '\n' ||
         (text[at] == '\r' && text.substr(at, 2) == "\r\n");
}

}  // namespace

std::optional<double> try_number(std::string_view text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  const char* end = text.data() + text.size();
  double number = 0;
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

CsvFile::CsvFile(FileBytes file, CsvOptions options)
    : file_(std::move(file)), delimiter_(options.delimiter) {
  file_.expect_front_to_back();
  const auto text = file_.text();
  std::uint64_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  std::vector<std::string> fields;
  while (at < text.size()) {
    const auto begin = at;
    read_row(at, fields);
    if (num_columns_ == 0) {
      num_columns_ = fields.size();
      const bool names = options.header == CsvHeader::first_row ||
                         (options.header == CsvHeader::detect &&
                          std::ranges::none_of(fields, [](const auto& field) {
                            return try_number(field).has_value();
                          }));
      if (names) {
        names_ = fields;
        continue;
      }
    }
    if (fields.size() != num_columns_) {
      refuse_line(file_, begin,
                  fmt::format("expected {} fields as in the first row, found {}", num_columns_,
                              fields.size()));
    }
    row_offsets_.push_back(begin);
  }
}

void CsvFile::read_row(std::uint64_t& at, std::vector<std::string>& fields) const {
  const auto text = file_.text();
  fields.clear();
  for (;;) {
    if (fields.size() == kMaxColumns) {
      refuse_line(file_, at, fmt::format("expected at most {} fields in a row", kMaxColumns));
    }
    auto& field = fields.emplace_back();
    if (at < text.size() && text[at] == '"') {
      const auto open = at++;
      for (;;) {
        const auto quote = text.find('"', at);
        if (quote == std::string_view::npos) {
          refuse_line(file_, open, "expected a closing quote, found the end of the file");
        }
        field += text.substr(at, quote - at);
        at = quote + 1;
        if (at >= text.size() || text[at] != '"') break;
        field += '"';
        ++at;
      }
      if (!at_line_end(text, at) && text[at] != delimiter_) {
        refuse_line(
            file_, at,
            fmt::format("expected {} or the end of the line after a closing quote, found {}",
                        in_quotes({&delimiter_, 1}), in_quotes(text.substr(at, 1))));
      }
    } else {
      const auto begin = at;
      while (!at_line_end(text, at) && text[at] != delimiter_) {
        if (text[at] == '"') {
          refuse_line(file_, at, "expected quotes around a whole field, found one inside a field");
        }
        ++at;
      }
      field = text.substr(begin, at - begin);
    }
    if (at_line_end(text, at)) break;
    ++at;  // the delimiter
  }
  if (at < text.size()) at += text[at] == '\r' ? 2 : 1;
}

std::vector<std::string> CsvFile::fields(std::uint64_t row) const {
  LOCKSTEP_ASSERT(row < num_rows(), "a row index is below num_rows()");
  std::vector<std::string> fields;
  auto at = row_offsets_[row];
  read_row(at, fields);
  return fields;
}

void CsvFile::numbers(std::uint64_t row, std::span<double> out) const {
  LOCKSTEP_ASSERT(out.size() == num_columns_, "`out` has one element per column");
  const auto all = fields(row);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto number = try_number(all[i]);
    if (!number) {
      refuse_line(
          file_, row_offsets_[row],
          fmt::format("expected a number in {}, found {}", column_words(i), in_quotes(all[i])));
    }
    out[i] = *number;
  }
}

std::string CsvFile::column_words(std::uint64_t column) const {
  if (names_.empty()) return fmt::format("column {}", column + 1);
  return fmt::format("column {} ({})", column + 1, in_quotes(names_[column]));
}

}  // namespace lockstep
