#include "lockstep/report/flat_line.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

class Scanner {
 public:
  explicit Scanner(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  bool try_skip(char letter) {
    skip_blanks();
    if (at_ == end_ || *at_ != letter) return false;
    ++at_;
    return true;
  }

  // The bytes between quotes.
  bool try_read_text(std::string_view& text) {
    if (!try_skip('"')) return false;
    const char* begin = at_;
    while (at_ < end_ && *at_ != '"') at_ += *at_ == '\\' ? 2 : 1;
    if (at_ >= end_) return false;
    text = {begin, static_cast<std::size_t>(at_ - begin)};
    ++at_;
    return true;
  }

  bool try_read_value(FlatField& field) {
    skip_blanks();
    field.number = kNothing;
    field.text = {};
    field.is_text = at_ < end_ && *at_ == '"';
    if (field.is_text) return try_read_text(field.text);
    if (try_skip_word("null")) return true;
    if (try_skip_word("true")) return field.number = 1, true;
    if (try_skip_word("false")) return field.number = 0, true;
    const auto [stopped, error] = std::from_chars(at_, end_, field.number);
    // A number that a double cannot hold is not finite, as null.
    if (error == std::errc::result_out_of_range) field.number = kNothing;
    if (stopped == at_ || error == std::errc::invalid_argument) return false;
    at_ = stopped;
    return true;
  }

  [[nodiscard]] bool is_done() {
    skip_blanks();
    return at_ == end_;
  }

 private:
  void skip_blanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool try_skip_word(std::string_view word) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word))
      return false;
    at_ += word.size();
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace

bool FlatLine::parse(std::string_view line) {
  fields_.clear();
  Scanner scanner(line);
  if (!scanner.try_skip('{')) return false;
  if (scanner.try_skip('}')) return scanner.is_done();
  do {
    FlatField field;
    if (!scanner.try_read_text(field.name) || !scanner.try_skip(':') ||
        !scanner.try_read_value(field)) {
      return false;
    }
    fields_.push_back(field);
  } while (scanner.try_skip(','));
  return scanner.try_skip('}') && scanner.is_done();
}

const FlatField* FlatLine::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(fields_, name, &FlatField::name);
  return found == fields_.end() ? nullptr : &*found;
}

std::string unescaped(std::string_view text) {
  if (text.find('\\') == std::string_view::npos) return std::string(text);
  const auto json = nlohmann::json::parse('"' + std::string(text) + '"', nullptr, false);
  return json.is_string() ? json.get<std::string>() : std::string(text);
}

}  // namespace lockstep
