#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "lockstep/base/quote.h"
#include "lockstep/formats/npy_header_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxDims = 64;  // numpy's own limit

// Parses the subset of Python literals that numpy writes.
class Parser {
 public:
  Parser(const FileBytes& file, std::uint64_t begin, std::uint64_t end)
      : file_(file), at_(begin), end_(end) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    expect('{');
    while (!try_skip('}')) {
      skip_spaces();
      const auto key_at = at_;
      const auto key = string();
      expect(':');
      if (key == "descr" && !std::exchange(has_descr, true)) {
        header.descr = descr();
      } else if (key == "fortran_order" && !std::exchange(has_order, true)) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !std::exchange(has_shape, true)) {
        header.shape = shape();
      } else {
        refuse(file_, key_at,
               fmt::format("expected the keys descr, fortran_order and shape once each, found {}",
                           in_quotes(key)));
      }
      if (!try_skip(',')) {
        expect('}');
        break;
      }
    }
    if (!has_descr || !has_order || !has_shape) {
      refuse(file_, at_, "expected the keys descr, fortran_order and shape, found fewer");
    }
    skip_spaces();
    if (at_ != end_ && file_.text()[at_] == '\n') ++at_;
    if (at_ != end_) wrong("spaces and a line feed at the end");
    return header;
  }

 private:
  [[noreturn]] void wrong(std::string_view expected) const {
    refuse(file_, at_,
           fmt::format("expected {} in the npy header, found {}", expected,
                       at_ < end_ ? in_quotes(file_.text().substr(
                                        at_, std::min<std::uint64_t>(16, end_ - at_)))
                                  : "its end"));
  }
  void skip_spaces() {
    while (at_ < end_ && file_.text()[at_] == ' ') ++at_;
  }
  bool try_skip(char c) {
    skip_spaces();
    if (at_ == end_ || file_.text()[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!try_skip(c)) wrong(in_quotes(std::string_view(&c, 1)));
  }
  std::string string() {
    skip_spaces();
    const char mark = at_ < end_ ? file_.text()[at_] : '\0';
    if (mark != '\'' && mark != '"') wrong("a string");
    const auto close = file_.text().substr(0, end_).find(mark, at_ + 1);
    if (close == std::string_view::npos) wrong("the end of a string");
    std::string value(file_.text().substr(at_ + 1, close - at_ - 1));
    at_ = close + 1;
    return value;
  }
  std::string descr() {
    skip_spaces();
    if (at_ < end_ && file_.text()[at_] == '[') {
      wrong("one element type such as '<f4' (arrays of records are unsupported)");
    }
    return string();
  }
  bool boolean() {
    skip_spaces();
    const auto text = file_.text().substr(at_, end_ - at_);
    const bool value = text.starts_with("True");
    if (!value && !text.starts_with("False")) wrong("True or False");
    at_ += value ? 4 : 5;
    return value;
  }
  std::vector<std::uint64_t> shape() {
    std::vector<std::uint64_t> sizes;
    expect('(');
    bool comma = true;
    while (!try_skip(')')) {
      if (!comma || sizes.size() == kMaxDims) wrong("a tuple of at most 64 whole numbers");
      sizes.push_back(number());
      comma = try_skip(',');
    }
    if (sizes.size() == 1 && !comma) wrong("a comma in a tuple of one");
    return sizes;
  }
  std::uint64_t number() {
    skip_spaces();
    std::uint64_t value = 0;
    const char* begin = file_.text().data() + at_;
    const auto [stopped, error] = std::from_chars(begin, file_.text().data() + end_, value);
    if (error != std::errc{}) wrong("a whole number below 2^64");
    at_ += static_cast<std::uint64_t>(stopped - begin);
    return value;
  }

  const FileBytes& file_;
  std::uint64_t at_;
  std::uint64_t end_;
};

}  // namespace

NpyHeader parse_npy_header(const FileBytes& file, std::uint64_t begin, std::uint64_t end) {
  return Parser(file, begin, end).parse();
}

}  // namespace lockstep
