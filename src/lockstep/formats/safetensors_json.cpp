#include "lockstep/formats/safetensors_json_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

// Limits of this parser. They bound the memory that a hostile header can use beyond its own size.
constexpr std::size_t kMaxTokenBytes = 1'048'576;  // nlohmann has two copies, more in errors
constexpr std::size_t kMaxMetadataKeys = 100'000;  // a map node is ten times its shortest JSON
constexpr std::size_t kMaxRank = 64;               // as in torch and numpy
constexpr std::size_t kMaxShownBytes = 64;         // of the file's text in a message

// The size without the padding spaces.
std::size_t unpadded_size(std::string_view json) { return json.find_last_not_of(' ') + 1; }

// Refuses what nlohmann's parser accepts: a byte order mark or spaces before the header, a NUL at
// its end, white space other than spaces after it.
void check_frame(std::string_view json) {
  if (json.empty() || json.front() != '{') {
    refuse_safetensors(
        fmt::format("expected it to start with {{, found {}", shown(json.substr(0, 8))));
  }
  if (const auto nul = json.find('\0'); nul != std::string_view::npos) {
    refuse_safetensors(fmt::format("byte {} is NUL, expected JSON padded only with spaces", nul));
  }
  const std::size_t size = unpadded_size(json);
  if (json[size - 1] != '}') {
    refuse_safetensors(fmt::format("expected it to end with }} and only spaces, found {}",
                                   shown(json.substr(size - 1, 1))));
  }
}

// Passes the JSON to nlohmann's parser and refuses a token that is too long before the parser has
// stored it.
class TokenIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TokenIterator(const char* at, std::size_t& token_bytes) : at_(at), token_bytes_(&token_bytes) {}

  reference operator*() const { return *at_; }
  TokenIterator& operator++() {
    if (++*token_bytes_ > kMaxTokenBytes) {
      refuse_safetensors(
          fmt::format("it has a string, a number or white space of more than {} bytes, expected "
                      "less",
                      kMaxTokenBytes));
    }
    ++at_;
    return *this;
  }
  bool operator==(const TokenIterator& other) const { return at_ == other.at_; }
  bool operator!=(const TokenIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* token_bytes_;  // since the last event; EventReader resets it
};

// The meaning of the next JSON value. Arrays have two contexts: the array itself, then its numbers.
enum class Context {
  dtype,
  shape,
  offsets,
  size,
  offset,
  tensor,
  metadata,
  metadata_value,
  header
};

// Indexed by Context; the first three are the fields of a tensor.
struct ContextWords {
  std::string_view field;
  std::string_view subject;
  std::string_view expected;
};
constexpr std::array<ContextWords, 9> kContexts{{
    {"dtype", "the dtype of tensor", "a string such as \"F32\""},
    {"shape", "the shape of tensor", "an array of whole numbers"},
    {"data_offsets", "data_offsets of tensor", "an array of two whole numbers"},
    {"", "the shape of tensor", "whole numbers from 0 below 2^64"},
    {"", "data_offsets of tensor", "whole numbers from 0 below 2^64"},
    {"", "tensor", "an object with dtype, shape and data_offsets"},
    {"", "the key", "an object of strings"},
    {"", "the __metadata__ key", "a string"},
    {"", "the header", "an object"},
}};
constexpr std::size_t kNumFields = 3;

// Receives the events of nlohmann's sax_parse. A header has only three kinds of objects and two of
// arrays, so object_ and context_ describe the position. A value of another kind is refused at its
// first character: nothing is nested deeper, and nothing unknown is skipped. Errors are exceptions,
// so every event returns true.
class EventReader {
 public:
  bool null() { return wrong("null"); }
  bool boolean(bool value) { return wrong(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) {
    return wrong(fmt::format("the signed number {}", value));
  }
  bool number_unsigned(std::uint64_t value);
  bool number_float(double /*value*/, const std::string& text) {
    return wrong(fmt::format("the number {}", shown(text)));
  }
  bool string(std::string& value);
  bool binary(std::vector<std::uint8_t>& /*value*/) { return wrong("binary"); }
  bool start_object(std::size_t /*unknown*/);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t /*unknown*/);
  bool end_array();
  // nlohmann's message repeats bytes of the file without a limit; the position is sufficient.
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    refuse_safetensors(fmt::format("it is not valid UTF-8 JSON near byte {}", position));
  }

  [[nodiscard]] std::size_t& token_bytes() { return token_bytes_; }
  [[nodiscard]] SafetensorsHeader& header() { return header_; }

 private:
  enum class Object { header, metadata, tensor };

  bool next();
  [[nodiscard]] std::string subject() const;
  [[noreturn]] bool wrong(std::string_view found) const;
  void start_header_value(const std::string& name);
  void start_metadata_value(const std::string& name);
  void start_field(const std::string& name);
  void check_fields_seen() const;

  std::size_t token_bytes_ = 0;
  Object object_ = Object::header;  // the innermost open one
  Context context_ = Context::header;
  std::string name_;  // the last key of the header, or of the metadata
  bool metadata_seen_ = false;
  std::array<bool, kNumFields> fields_seen_{};
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> numbers_;  // of the open array
  SafetensorsHeader header_;
};

bool EventReader::next() {
  token_bytes_ = 0;
  return true;
}

std::string EventReader::subject() const {
  return fmt::format("{} {}", kContexts[static_cast<std::size_t>(context_)].subject, shown(name_));
}

bool EventReader::wrong(std::string_view found) const {
  const bool is_inside = context_ == Context::size || context_ == Context::offset;
  refuse_safetensors(fmt::format("{} {} {}, expected {}", subject(), is_inside ? "has" : "is",
                                 found, kContexts[static_cast<std::size_t>(context_)].expected));
}

bool EventReader::number_unsigned(std::uint64_t value) {
  if (context_ != Context::size && context_ != Context::offset)
    wrong(fmt::format("the number {}", value));
  const std::size_t limit = context_ == Context::size ? kMaxRank : 2;
  if (numbers_.size() == limit) {
    refuse_safetensors(
        fmt::format("{} has more numbers than expected, at most {}", subject(), limit));
  }
  numbers_.push_back(value);
  return next();
}

bool EventReader::string(std::string& value) {
  if (context_ == Context::metadata_value) {
    header_.metadata.emplace(name_, value);
    return next();
  }
  if (context_ != Context::dtype) wrong(fmt::format("the string {}", shown(value)));
  const auto dtype = try_safetensors_dtype(value);
  if (!dtype) {
    refuse_safetensors(fmt::format("{} is {}, expected one of safetensors 0.8.0 such as \"F32\"",
                                   subject(), shown(value)));
  }
  entry_.dtype = *dtype;
  return next();
}

bool EventReader::start_object(std::size_t /*unknown*/) {
  if (context_ == Context::metadata) {
    object_ = Object::metadata;
  } else if (context_ == Context::tensor) {
    object_ = Object::tensor;
    entry_ = SafetensorsEntry{};
    entry_.name = name_;
    fields_seen_ = {};
  } else if (context_ != Context::header) {
    wrong("an object");
  }
  return next();
}

bool EventReader::key(std::string& name) {
  if (object_ == Object::header) {
    start_header_value(name);
  } else if (object_ == Object::metadata) {
    start_metadata_value(name);
  } else {
    start_field(name);
  }
  return next();
}

void EventReader::start_header_value(const std::string& name) {
  name_ = name;
  context_ = name == "__metadata__" ? Context::metadata : Context::tensor;
  if (context_ == Context::metadata && std::exchange(metadata_seen_, true)) {
    refuse_safetensors(fmt::format("{} appears twice, expected it once", subject()));
  }
}

void EventReader::start_metadata_value(const std::string& name) {
  name_ = name;
  context_ = Context::metadata_value;
  if (header_.metadata.contains(name)) {
    refuse_safetensors(fmt::format("{} appears twice, expected it once", subject()));
  }
  if (header_.metadata.size() == kMaxMetadataKeys) {
    refuse_safetensors(
        fmt::format("__metadata__ has more keys than expected, at most {}", kMaxMetadataKeys));
  }
}

void EventReader::start_field(const std::string& name) {
  std::size_t field = 0;
  while (field < kNumFields && kContexts[field].field != name) ++field;
  if (field == kNumFields) {
    refuse_safetensors(
        fmt::format("tensor {} has the field {}, expected only dtype, shape and data_offsets",
                    shown(entry_.name), shown(name)));
  }
  if (std::exchange(fields_seen_[field], true)) {
    refuse_safetensors(
        fmt::format("tensor {} has {} twice, expected it once", shown(entry_.name), name));
  }
  context_ = static_cast<Context>(field);
}

bool EventReader::end_object() {
  if (object_ == Object::tensor) {
    check_fields_seen();
    header_.entries.push_back(std::move(entry_));
  }
  object_ = Object::header;
  return next();
}

void EventReader::check_fields_seen() const {
  const auto missing = std::find(fields_seen_.begin(), fields_seen_.end(), false);
  if (missing == fields_seen_.end()) return;
  refuse_safetensors(
      fmt::format("tensor {} has no {}, expected dtype, shape and data_offsets", shown(entry_.name),
                  kContexts[static_cast<std::size_t>(missing - fields_seen_.begin())].field));
}

bool EventReader::start_array(std::size_t /*unknown*/) {
  if (context_ != Context::shape && context_ != Context::offsets) wrong("an array");
  context_ = context_ == Context::shape ? Context::size : Context::offset;
  numbers_.clear();
  return next();
}

bool EventReader::end_array() {
  if (context_ == Context::size) {
    entry_.shape.assign(numbers_.begin(), numbers_.end());
    return next();
  }
  if (numbers_.size() != 2) {
    refuse_safetensors(fmt::format("{} has {} numbers, expected 2", subject(), numbers_.size()));
  }
  entry_.begin = numbers_[0];
  entry_.end = numbers_[1];
  return next();
}

}  // namespace

SafetensorsHeader read_safetensors_json(std::string_view json) {
  check_frame(json);
  EventReader reader;
  const TokenIterator first(json.data(), reader.token_bytes());
  const TokenIterator last(json.data() + unpadded_size(json), reader.token_bytes());
  (void)nlohmann::json::sax_parse(first, last, &reader);  // returns true or throws
  return std::move(reader.header());
}

void refuse_safetensors(std::string_view reason) {
  throw UsageError(fmt::format(
      "the safetensors header is invalid: {}; download the file again, or save it again "
      "with a current safetensors library",
      reason));
}

std::string shown(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, kMaxShownBytes)) {
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (c >= 0x20 && c < 0x7f) {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  result += '"';
  if (text.size() > kMaxShownBytes) result += fmt::format("... ({} bytes)", text.size());
  return result;
}

}  // namespace lockstep
