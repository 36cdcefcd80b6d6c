#include "lockstep/formats/jsonl_file.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/base/quote.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

// Extracts one field of the outermost object from the parser's events. It stores nothing else, so a
// line needs no more memory than its longest string. Brackets are counted without recursion.
class FieldPicker : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit FieldPicker(std::string_view field) : field_(field) {}

  bool null() override { return value("null"); }
  bool boolean(bool /*value*/) override { return value("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return value("a number"); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return value("a number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return value("a number");
  }
  bool binary(binary_t& /*value*/) override { return value("binary"); }
  bool string(string_t& text) override {
    if (depth_ == 1 && wanted_) {
      found_ = std::move(text);
      return true;
    }
    return value("a string");
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    wanted_ = name == field_;
    if (wanted_ && found_) return fail(fmt::format("expected {} once, found it twice", field()));
    return true;
  }
  bool start_object(std::size_t /*unknown*/) override {
    return (depth_ == 0 || value("an object")) && open();
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*unknown*/) override { return value("an array") && open(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return fail(fmt::format("expected valid UTF-8 JSON, found an error near byte {} of the line",
                            position));
  }

  [[nodiscard]] std::optional<std::string>& found() { return found_; }
  [[nodiscard]] std::string reason() const {
    return reason_.empty() ? fmt::format("expected a field {}, found none", field()) : reason_;
  }

 private:
  [[nodiscard]] std::string field() const { return in_quotes(field_); }
  bool fail(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
    return false;
  }
  bool value(std::string_view kind) {
    if (depth_ == 0) return fail(fmt::format("expected an object, found {}", kind));
    if (depth_ == 1 && wanted_) {
      return fail(fmt::format("expected {} to be a string, found {}", field(), kind));
    }
    return true;
  }
  bool open() {
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::string_view field_;
  std::uint64_t depth_ = 0;
  bool wanted_ = false;  // the last key of the outermost object is the field
  std::optional<std::string> found_;
  std::string reason_;
};

}  // namespace

JsonlFile::JsonlFile(FileBytes file, JsonlOptions options)
    : lines_(std::move(file), {.documents = DocumentBreak::line}), options_(std::move(options)) {}

std::string JsonlFile::document(std::uint64_t index) const {
  const auto line = lines_.document(index);
  FieldPicker picker(options_.field);
  const bool parsed = nlohmann::json::sax_parse(line, &picker);
  if (!parsed || !picker.found()) {
    refuse(lines_.file(), lines_.offset(index),
           fmt::format("document {}: {}", index, picker.reason()));
  }
  return std::move(*picker.found());
}

}  // namespace lockstep
