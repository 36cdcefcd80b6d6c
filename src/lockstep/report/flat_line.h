// A line of metrics.jsonl as fields, without a JSON library: a report reads hundreds of megabytes
// in a second. A line is a flat JSON object: numbers, texts, null, true, false.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct FlatField {
  std::string_view name = {};
  std::string_view text = {};  // of a text: the bytes between the quotes, with their escapes
  double number = 0;           // NaN for a text and null
  bool is_text = false;
};

class FlatLine {
 public:
  /// Replaces the fields by those of `line`, which must outlive them. Returns false for anything
  /// but a flat JSON object.
  [[nodiscard]] bool parse(std::string_view line);

  [[nodiscard]] std::span<const FlatField> fields() const noexcept { return fields_; }
  /// The field called `name`; nullptr if there is none.
  [[nodiscard]] const FlatField* find(std::string_view name) const noexcept;

 private:
  std::vector<FlatField> fields_;
};

/// The text of a field, without escapes. Invalid escapes stay as they are.
[[nodiscard]] std::string unescaped(std::string_view text);

}  // namespace lockstep
