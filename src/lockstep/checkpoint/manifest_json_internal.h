// A strict JSON reader for untrusted files: limited depth, no repeated key in an object. And a view
// of an object's fields, each read once with its type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

/// Throws UsageError "invalid checkpoint manifest: <reason>".
[[noreturn]] void refuse_manifest(std::string_view reason);

/// Parses `text`. Throws UsageError unless it is one value of valid UTF-8 JSON, nested at most 64
/// deep, without a repeated key in an object.
[[nodiscard]] nlohmann::json strict_json(std::string_view text);

/// The fields of one object. expect_no_more() refuses fields that have not been read. All functions
/// throw UsageError, with both the expected and the found value.
class Fields {
 public:
  /// `what` names the object in messages: "the manifest", "file 3". Throws UsageError unless
  /// `value` is an object.
  Fields(const nlohmann::json& value, std::string what);

  [[nodiscard]] const nlohmann::json& at(const char* name);
  [[nodiscard]] std::string text(const char* name);
  [[nodiscard]] std::int64_t whole(const char* name, std::int64_t least, std::int64_t most);
  /// 64-bit numbers are text, because many JSON readers convert large numbers to doubles.
  [[nodiscard]] std::uint64_t hexadecimal(const char* name);
  [[nodiscard]] std::uint64_t decimal(const char* name);
  void expect_no_more() const;

 private:
  const nlohmann::json& object_;
  std::string what_;
  std::vector<std::string> read_;
};

}  // namespace lockstep
