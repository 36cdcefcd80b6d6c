// The processors this process may use, as the machine groups them. A processor is what the kernel
// numbers; a core has one or, with hyper-threading, several of them; a node is the cores that are
// equally near to a part of the memory (NUMA).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct CpuTopology {
  struct Core {
    std::vector<int> processors;

    friend bool operator==(const Core&, const Core&) = default;
  };
  struct Node {
    std::vector<Core> cores;

    friend bool operator==(const Node&, const Node&) = default;
  };

  std::vector<Node> nodes = {};      // only those with a processor we may use
  std::optional<double> quota = {};  // processors' worth of time that the container allows

  [[nodiscard]] int num_cores() const noexcept;

  friend bool operator==(const CpuTopology&, const CpuTopology&) = default;
};

/// The machine as `root` ("/sys") describes it, less what is not in `allowed`. What it does not
/// describe is taken for one node of cores with one processor each.
[[nodiscard]] CpuTopology read_cpu_topology(std::span<const int> allowed,
                                            const std::string& root = "/sys");

/// The processors that the calling thread may use. Throws SystemError.
[[nodiscard]] std::vector<int> allowed_processors();

/// The numbers of the kernel's "0-3,8"; empty for text of any other form.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace lockstep
