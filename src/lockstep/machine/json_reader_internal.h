// Reads files that people write and edit, as JSON. Files are untrusted: every field is validated
// before use, and unknown fields are refused, so that a misspelled field does not count as absent.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// The text of a file. Throws SystemError if it does not exist or cannot be read, UsageError for
/// anything but a regular file of at most 4 MiB.
[[nodiscard]] std::string read_regular_file(const std::string& path);

// Reads the fields of one file; each refusal names the file and the field.
class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  explicit JsonReader(std::string_view origin) : origin_(origin) {}

  [[noreturn]] void refuse(std::string_view field, std::string_view expected) const {
    throw UsageError(fmt::format("{}: {} is not {}", origin_, field, expected));
  }

  void check_fields(const Json& object, std::string_view name,
                    std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) refuse(name, "an object");
    for (const auto& [field, value] : object.items()) {
      if (std::find(known.begin(), known.end(), field) == known.end()) {
        throw UsageError(fmt::format("{}: {} has an unknown field \"{:.40}\"; known fields are {}",
                                     origin_, name, field, fmt::join(known, ", ")));
      }
    }
  }

  [[nodiscard]] const Json& at(const Json& object, const std::string& field) const {
    const auto found = object.find(field);
    if (found == object.end()) {
      throw UsageError(fmt::format("{}: {} is missing", origin_, field));
    }
    return *found;
  }

  [[nodiscard]] std::int64_t integer(const Json& value, std::string_view name,
                                     std::int64_t smallest, std::int64_t largest) const {
    const auto expected = fmt::format("a whole number from {} to {}", smallest, largest);
    if (!value.is_number_integer()) refuse(name, expected);
    // get<std::int64_t> wraps above the largest signed number.
    const bool fits = !value.is_number_unsigned() ||
                      value.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest);
    if (!fits) refuse(name, expected);
    const auto number = value.get<std::int64_t>();
    if (number < smallest || number > largest) refuse(name, expected);
    return number;
  }

  [[nodiscard]] std::string text(const Json& value, std::string_view name) const {
    if (!value.is_string()) refuse(name, "a text");
    return value.get<std::string>();
  }

  [[nodiscard]] const Json& list(const Json& value, std::string_view name) const {
    if (!value.is_array()) refuse(name, "a list");
    return value;
  }

  // Absent or a number above 0.
  [[nodiscard]] std::optional<double> positive(const Json& object, const std::string& field) const {
    const auto found = object.find(field);
    if (found == object.end()) return std::nullopt;
    if (!found->is_number()) refuse(field, "a number above 0");
    const auto number = found->get<double>();
    if (!std::isfinite(number) || number <= 0) refuse(field, "a number above 0");
    return number;
  }

 private:
  std::string_view origin_;
};

}  // namespace lockstep
