// Expands SLURM's short forms: "h[0-3,7],x1" for host names, "2(x3),1" for tasks per node.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

constexpr std::size_t kMaxSlurmNodes = 65536;

/// The host names of a SLURM node list, in its order. Numbers keep their leading zeros:
/// "n[08-10]" is n08, n09, n10. A name may have several brackets: "r[0-1]n[0-1]".
/// Throws UsageError, quoting `list`, for an invalid list or one of more than kMaxSlurmNodes names.
[[nodiscard]] std::vector<std::string> expand_slurm_nodes(std::string_view list);

/// The counts of a list such as SLURM_STEP_TASKS_PER_NODE: "2(x3),1" is 2, 2, 2, 1.
/// Throws as expand_slurm_nodes does.
[[nodiscard]] std::vector<int> expand_slurm_counts(std::string_view list);

}  // namespace lockstep
