// The report of one node: its lines, and the values that are compared. Nodes send it as JSON to
// node 0, which shows all of them.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/checks.h"

namespace lockstep::cli {

struct DoctorReport {
  NodeValues node = {};
  int ranks = 1;
  std::vector<CheckLine> lines = {};
};

[[nodiscard]] DoctorReport report_of(const DoctorFacts& facts);
[[nodiscard]] std::string to_text(const DoctorReport& report);
/// Throws UsageError for other text.
[[nodiscard]] DoctorReport report_from_text(const std::string& text);

/// The reports for people, and as one JSON object; `seconds` is the time that all took.
[[nodiscard]] std::string doctor_text(const std::vector<DoctorReport>& reports, double seconds,
                                      bool color);
[[nodiscard]] std::string doctor_json(const std::vector<DoctorReport>& reports, double seconds);
/// Over all nodes and their differences.
[[nodiscard]] Verdict worst_of(const std::vector<DoctorReport>& reports);

}  // namespace lockstep::cli
