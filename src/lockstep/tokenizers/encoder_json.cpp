#include <fmt/format.h>

#include <optional>
#include <unordered_set>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/base/quote.h"
#include "lockstep/formats/refusal.h"
#include "lockstep/tokenizers/byte_letters_internal.h"
#include "lockstep/tokenizers/encoder_json_internal.h"

namespace lockstep {
namespace {

struct Entry {
  std::string bytes;
  std::uint64_t number;
};

// Receives a flat object of unsigned integers from the parser's events; stops at anything else.
class EntryReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return fail("null"); }
  bool boolean(bool /*value*/) override { return fail("a boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return fail("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!open_) return fail("a number");
    entries_.push_back({std::exchange(key_, {}), value});
    return true;
  }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return fail("a number that is not an integer");
  }
  bool string(string_t& /*text*/) override { return fail("a string"); }
  bool binary(binary_t& /*value*/) override { return fail("binary"); }
  bool start_object(std::size_t /*unknown*/) override {
    return std::exchange(open_, true) ? fail("an object") : true;
  }
  bool key(string_t& letters) override {
    auto bytes = try_bytes_of_letters(letters);
    if (!bytes) return fail(fmt::format("the token {}", in_quotes(letters)));
    key_ = std::move(*bytes);
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*unknown*/) override { return fail("an array"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return fail(fmt::format("an error near byte {}", position));
  }

  [[nodiscard]] std::vector<Entry>& entries() { return entries_; }
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  bool fail(std::string found) {
    if (found_.empty()) found_ = std::move(found);
    return false;
  }

  bool open_ = false;
  std::string key_;
  std::vector<Entry> entries_;
  std::string found_;
};

}  // namespace

std::vector<std::string> read_encoder_json(const FileBytes& file) {
  EntryReader reader;
  if (!nlohmann::json::sax_parse(file.text(), &reader)) {
    refuse(file, 0,
           fmt::format("expected one JSON object from tokens in GPT-2's letters to integers, found "
                       "{}",
                       reader.found()));
  }
  auto& entries = reader.entries();
  std::vector<std::optional<std::string>> by_number(entries.size());
  std::unordered_set<std::string> seen;
  for (auto& [bytes, number] : entries) {
    if (number >= entries.size() || by_number[number] || !seen.insert(bytes).second) {
      refuse(
          file, 0,
          fmt::format("expected {} different tokens with numbers 0 to {}, found {} with number {}, "
                      "which is too large or already used",
                      entries.size(), entries.size() - 1, in_quotes(bytes), number));
    }
    by_number[number] = std::move(bytes);
  }
  std::vector<std::string> tokens;
  for (auto& token : by_number) tokens.push_back(std::move(*token));
  return tokens;
}

}  // namespace lockstep
