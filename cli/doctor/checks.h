// Judges what `lockstep doctor` found: one line per check, each with what to do if it is not green.
// Pure functions; thresholds are in checks.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/doctor/facts.h"

namespace lockstep::cli {

enum class Verdict { green, yellow, red };

[[nodiscard]] std::string_view to_string(Verdict verdict) noexcept;

struct CheckLine {
  std::string name;  // "descriptors"
  Verdict verdict = Verdict::green;
  std::string found;
  std::string fix = {};  // empty if green

  friend bool operator==(const CheckLine&, const CheckLine&) = default;
};

/// The lines of one node, in the order in which they are shown.
[[nodiscard]] std::vector<CheckLine> check_node(const DoctorFacts& facts);

/// The values of a node that are compared with those of other nodes, in a fixed order.
struct NodeValues {
  std::string host;
  std::vector<std::string> values;
};
[[nodiscard]] NodeValues compared_values(const DoctorFacts& facts);

/// What differs between nodes that should be equal: red for versions, yellow for hardware. One
/// green line if nothing does; none for a single node.
[[nodiscard]] std::vector<CheckLine> compare_nodes(std::span<const NodeValues> nodes);

/// The worst of the lines.
[[nodiscard]] Verdict worst_of(std::span<const CheckLine> lines) noexcept;

}  // namespace lockstep::cli
