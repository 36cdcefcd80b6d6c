// Function names and source lines of code locations, from addr2line or eu-addr2line.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/launch/crash_report.h"

namespace lockstep {

struct NamedLocation {
  std::string function = {};  // empty: unknown
  std::string source = {};    // "file:line"; empty: unknown
};

/// For each location the functions that contain it: the innermost inlined one first, the real one
/// last; empty if unknown. Runs one tool per module, that of the first frame first.
[[nodiscard]] std::vector<std::vector<NamedLocation>> name_locations(
    std::span<const CodeLocation> locations, Deadline deadline);

/// Parses the output of addr2line -a -f -i for `count` addresses.
[[nodiscard]] std::vector<std::vector<NamedLocation>> parse_addr2line(std::string_view text,
                                                                      std::size_t count);

/// The output of the program; nullopt when it does not exist or fails, or when it does not end by
/// `deadline` and is killed.
[[nodiscard]] std::optional<std::string> try_run_tool(const std::vector<std::string>& command,
                                                      Deadline deadline);

}  // namespace lockstep
