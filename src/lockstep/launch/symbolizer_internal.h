// Names for locations in code, from the tools that every toolchain has.
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

/// For each location the functions it is in: the innermost inlined one first, the real one last;
/// none when nothing is known. Runs one tool per module, the first frame's module first.
[[nodiscard]] std::vector<std::vector<NamedLocation>> name_locations(
    std::span<const CodeLocation> locations, Deadline deadline);

/// What addr2line -a -f -i prints for `count` addresses.
[[nodiscard]] std::vector<std::vector<NamedLocation>> parse_addr2line(std::string_view text,
                                                                      std::size_t count);

/// What the program prints; nothing when it is not there, fails, or is not done by `deadline`, when
/// it is killed.
[[nodiscard]] std::optional<std::string> try_run_tool(const std::vector<std::string>& command,
                                                      Deadline deadline);

}  // namespace lockstep
