// JSON from a file that may come from anyone, read strictly: a limited depth, no key twice in one
// object. And its fields, each asked for once by kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

/// Throws the UsageError that every refusal of a manifest is.
[[noreturn]] void refuse_manifest(std::string_view reason);

/// The JSON value that `text` is. Throws UsageError for anything but one value of valid UTF-8 JSON,
/// nested at most 64 deep, without a key that stands twice in an object.
[[nodiscard]] nlohmann::json strict_json(std::string_view text);

/// The fields of one object. Each is taken once; expect_no_more() refuses what was not.
class Fields {
 public:
  /// `what` names the object in messages: "the manifest", "file 3". Throws UsageError unless
  /// `value` is an object.
  Fields(const nlohmann::json& value, std::string what);

  [[nodiscard]] const nlohmann::json& take(const char* name);
  [[nodiscard]] std::string text(const char* name);
  [[nodiscard]] std::int64_t whole(const char* name, std::int64_t least, std::int64_t most);
  /// 64 bits as text: many readers of JSON turn large numbers into doubles.
  [[nodiscard]] std::uint64_t hexadecimal(const char* name);
  [[nodiscard]] std::uint64_t decimal(const char* name);
  void expect_no_more() const;

 private:
  const nlohmann::json& object_;
  std::string what_;
  std::vector<std::string> taken_;
};

}  // namespace lockstep
