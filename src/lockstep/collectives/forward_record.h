// What the ranks have reduced in the forward of a block that runs twice, as activation
// checkpointing does: the second forward, inside backward(), uses the values of the first one, so
// that every call between ranks is made once. The first forward runs in a ForwardRecord::Recording,
// the second one in a ForwardRecord::Repeating of the same record.
//
// The code that reduces something in a forward looks for repeated_value() first, and calls
// note_value() in both forwards. Scopes belong to their thread and may be nested.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// The base of what is kept.
class ForwardValue {
 public:
  ForwardValue() = default;
  ForwardValue(const ForwardValue&) = delete;
  ForwardValue& operator=(const ForwardValue&) = delete;
  virtual ~ForwardValue() = default;
};

class ForwardRecord {
 public:
  /// While it lives, values that this thread notes are added to the record.
  class Recording;
  /// While it lives, this thread gets the values of the record, from the first on.
  class Repeating;

 private:
  std::vector<std::shared_ptr<const ForwardValue>> values_;

  struct Scope;
  friend std::shared_ptr<const ForwardValue> repeated_value();
  friend bool repeats_forward() noexcept;
  friend void note_value(const std::shared_ptr<const ForwardValue>& value);
};

struct ForwardRecord::Scope {
  Scope(ForwardRecord* recorded, const ForwardRecord* repeated);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();

  ForwardRecord* recorded;        // null in a Repeating
  const ForwardRecord* repeated;  // null in a Recording
  std::size_t next = 0;           // of `repeated`
  Scope* outer;
};

class ForwardRecord::Recording {
 public:
  explicit Recording(ForwardRecord& record) : scope_(&record, nullptr) {}

 private:
  Scope scope_;
};

class ForwardRecord::Repeating {
 public:
  explicit Repeating(const ForwardRecord& record) : scope_(nullptr, &record) {}

 private:
  Scope scope_;
};

/// Whether this thread runs a second forward.
[[nodiscard]] bool repeats_forward() noexcept;
/// In a second forward the value that the first one noted here; null if there is none.
[[nodiscard]] std::shared_ptr<const ForwardValue> repeated_value();
/// In a first forward: keeps `value` for the second ones. In a second forward: continues after
/// repeated_value(), which is `value`, and keeps it for the blocks inside that run twice again.
void note_value(const std::shared_ptr<const ForwardValue>& value);

}  // namespace lockstep
