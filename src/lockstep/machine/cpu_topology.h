// The processors that this process may use, grouped by core and NUMA node. A processor is a logical
// CPU, as the kernel numbers them. A core has one processor or, with hyper-threading, several. A
// node is a NUMA node: the cores that are equally near to a part of the memory.
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

  std::vector<Node> nodes = {};      // only nodes with an allowed processor
  std::optional<double> quota = {};  // processor time that the container allows, in processors

  [[nodiscard]] int num_cores() const noexcept;

  friend bool operator==(const CpuTopology&, const CpuTopology&) = default;
};

/// The topology of the processors in `allowed`, as `root` ("/sys") describes it. Processors that
/// are not described count as cores of one additional node.
[[nodiscard]] CpuTopology read_cpu_topology(std::span<const int> allowed,
                                            const std::string& root = "/sys");

/// The processors that the calling thread may use. Throws SystemError.
[[nodiscard]] std::vector<int> allowed_processors();

/// The numbers of a CPU list of the kernel, such as "0-3,8"; empty for any other text.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace lockstep
