#include "lockstep/checkpoint/manifest_json_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"

namespace lockstep {
namespace {

constexpr int kMaxDepth = 64;

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

}  // namespace

void refuse_manifest(std::string_view reason) {
  throw UsageError(fmt::format("this is no manifest of a checkpoint: {}", reason));
}

nlohmann::json strict_json(std::string_view text) {
  std::vector<std::size_t> num_keys;  // of the objects that are open
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) {
      refuse_manifest(fmt::format("it nests deeper than the {} levels expected", kMaxDepth));
    }
    if (event == Event::object_start) num_keys.push_back(0);
    if (event == Event::key) ++num_keys.back();
    if (event == Event::object_end) {
      if (num_keys.back() != value.size()) {
        refuse_manifest(
            fmt::format("an object has {} keys and only {} different ones, expected "
                        "each once",
                        num_keys.back(), value.size()));
      }
      num_keys.pop_back();
    }
    return true;
  };
  if (text.find('\0') != std::string_view::npos) refuse_manifest("it holds a NUL byte");
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::parse_error& error) {
    refuse_manifest(fmt::format("it is not valid UTF-8 JSON near byte {}", error.byte));
  } catch (const nlohmann::json::exception& error) {  // a number beyond every type
    refuse_manifest(fmt::format("its JSON holds a value that cannot be read (error {})", error.id));
  }
}

Fields::Fields(const nlohmann::json& value, std::string what)
    : object_(value), what_(std::move(what)) {
  if (!object_.is_object()) {
    refuse_manifest(fmt::format("{} is {}, expected an object", what_, object_.type_name()));
  }
}

const nlohmann::json& Fields::take(const char* name) {
  const auto found = object_.find(name);
  if (found == object_.end()) refuse_manifest(fmt::format("{} has no {}", what_, name));
  taken_.emplace_back(name);
  return *found;
}

std::string Fields::text(const char* name) {
  const auto& value = take(name);
  if (!value.is_string()) {
    refuse_manifest(
        fmt::format("{} of {} is {}, expected a string", name, what_, value.type_name()));
  }
  return value.get<std::string>();
}

std::int64_t Fields::whole(const char* name, std::int64_t least, std::int64_t most) {
  const auto& value = take(name);
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
    if (std::ranges::find(taken_, name) == taken_.end()) {
      refuse_manifest(fmt::format("{} has the field {}, which version 1 does not have", what_,
                                  in_quotes(name)));
    }
  }
}

}  // namespace lockstep
