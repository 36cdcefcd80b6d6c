#include "lockstep/checkpoint/manifest_json_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxDepth = 64;

std::uint64_t number_in(const std::string& text, int base, std::string_view where) {
  std::uint64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [used, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || used != end || text.empty()) {
    refuse_manifest(fmt::format("{} is {}, expected a whole number below 2^64 in base {}", where,
                                in_quotes(text), base));
  }
  return value;
}

// Receives the events of nlohmann's sax_parse and refuses repeated keys and deep nesting, which
// parse() accepts.
class Watch {
 public:
  bool null() { return true; }
  bool boolean(bool /*value*/) { return true; }
  bool number_integer(std::int64_t /*value*/) { return true; }
  bool number_unsigned(std::uint64_t /*value*/) { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) { return true; }
  bool string(std::string& /*value*/) { return true; }
  bool binary(std::vector<std::uint8_t>& /*value*/) { return true; }
  bool key(std::string& name) {
    keys_.back().push_back(std::move(name));
    return true;
  }
  bool start_object(std::size_t /*unknown*/) { return enter(); }
  bool start_array(std::size_t /*unknown*/) { return enter(); }
  bool end_array() {
    keys_.pop_back();
    return true;
  }
  bool end_object() {
    auto& keys = keys_.back();
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) {
      refuse_manifest(
          fmt::format("the key {} occurs twice in an object, expected once", in_quotes(*twice)));
    }
    keys_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) {
    refuse_manifest(error.id < 200
                        ? fmt::format("it is not valid UTF-8 JSON near byte {}", position)
                        : fmt::format("a number near byte {} is out of range", position));
  }

 private:
  bool enter() {
    if (keys_.size() == kMaxDepth) {
      refuse_manifest(fmt::format("it is nested deeper than {} levels", kMaxDepth));
    }
    keys_.emplace_back();
    return true;
  }

  std::vector<std::vector<std::string>> keys_;  // of the open objects; empty for arrays
};

}  // namespace

void refuse_manifest(std::string_view reason) {
  throw UsageError(fmt::format("invalid checkpoint manifest: {}", reason));
}

nlohmann::json strict_json(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) refuse_manifest("it contains a NUL byte");
  // Two passes, because nlohmann's parser with a callback takes quadratic time for a long array.
  Watch watch;
  (void)nlohmann::json::sax_parse(text.begin(), text.end(), &watch);  // returns true or throws
  return nlohmann::json::parse(text.begin(), text.end());
}

Fields::Fields(const nlohmann::json& value, std::string what)
    : object_(value), what_(std::move(what)) {
  if (!object_.is_object()) {
    refuse_manifest(fmt::format("{} is {}, expected an object", what_, object_.type_name()));
  }
}

const nlohmann::json& Fields::at(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) refuse_manifest(fmt::format("{} has no {}", what_, name));
  read_.emplace_back(name);
  return *found;
}

std::string Fields::text(const char* name) {
  const auto& value = at(name);
  if (!value.is_string()) {
    refuse_manifest(
        fmt::format("{} of {} is {}, expected a string", name, what_, value.type_name()));
  }
  return value.get<std::string>();
}

std::int64_t Fields::whole(const char* name, std::int64_t least, std::int64_t most) {
  const auto& value = at(name);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    refuse_manifest(fmt::format(
        "{} of {} is {}, expected a whole number from {} to {}", name, what_,
        value.is_number_integer() ? value.dump() : std::string(value.type_name()), least, most));
  }
  return value.get<std::int64_t>();
}

std::uint64_t Fields::hexadecimal(const char* name) {
  return number_in(text(name), 16, fmt::format("{} of {}", name, what_));
}

std::uint64_t Fields::decimal(const char* name) {
  return number_in(text(name), 10, fmt::format("{} of {}", name, what_));
}

void Fields::expect_no_more() const {
  for (const auto& [name, value] : object_.items()) {
    if (std::ranges::find(read_, name) == read_.end()) {
      refuse_manifest(fmt::format("{} has the field {}, which is unknown in version 1", what_,
                                  in_quotes(name)));
    }
  }
}

}  // namespace lockstep
