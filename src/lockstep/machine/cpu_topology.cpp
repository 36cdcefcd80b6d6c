#include "lockstep/machine/cpu_topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The processors of each node that the machine describes, by node number.
std::map<int, std::vector<int>> processors_by_node(const std::string& root) {
  std::map<int, std::vector<int>> result;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/devices/system/node", error)) {
    const auto name = entry.path().filename().string();
    const auto number =
        name.starts_with("node") ? parse_cpu_list(name.substr(4)) : std::vector<int>{};
    if (number.size() != 1) continue;
    result[number[0]] = parse_cpu_list(first_line(entry.path().string() + "/cpulist"));
  }
  return result;
}

// Moves the first processor of `left` and its hyper-thread siblings into a core.
CpuTopology::Core extract_core(std::set<int>& left, const std::string& root) {
  const int first = *left.begin();
  CpuTopology::Core core{{first}};
  left.erase(left.begin());
  const auto path =
      fmt::format("{}/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, first);
  for (const int sibling : parse_cpu_list(first_line(path))) {
    if (left.erase(sibling) > 0) core.processors.push_back(sibling);
  }
  return core;
}

CpuTopology::Node node_of(std::set<int> processors, const std::string& root) {
  CpuTopology::Node node;
  while (!processors.empty()) node.cores.push_back(extract_core(processors, root));
  return node;
}

// "400000 100000" is the time of four processors; "max 100000" is no limit.
std::optional<double> read_quota(const std::string& root) {
  std::istringstream words(first_line(root + "/fs/cgroup/cpu.max"));
  double time = 0;
  double period = 0;
  if (!(words >> time >> period) || time <= 0 || period <= 0) return std::nullopt;
  return time / period;
}

}  // namespace

int CpuTopology::num_cores() const noexcept {
  std::size_t count = 0;
  for (const auto& node : nodes) count += node.cores.size();
  return static_cast<int>(count);
}

CpuTopology read_cpu_topology(std::span<const int> allowed, const std::string& root) {
  CpuTopology result;
  std::set<int> left(allowed.begin(), allowed.end());
  for (const auto& [number, processors] : processors_by_node(root)) {
    std::set<int> here;
    for (const int processor : processors) {
      if (left.erase(processor) > 0) here.insert(processor);
    }
    if (!here.empty()) result.nodes.push_back(node_of(here, root));
  }
  if (!left.empty()) result.nodes.push_back(node_of(left, root));
  result.quota = read_quota(root);
  return result;
}

std::vector<int> allowed_processors() {
  // The kernel refuses a set that is smaller than its own and does not report its size.
  for (int most = 1024; most <= (1 << 20); most *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(most));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    const int result = ::sched_getaffinity(0, bytes, set);
    const int error = errno;
    std::vector<int> processors;
    for (int i = 0; result == 0 && i < most; ++i) {
      if (CPU_ISSET_S(static_cast<std::size_t>(i), bytes, set)) processors.push_back(i);
    }
    CPU_FREE(set);
    if (result == 0) return processors;
    if (error != EINVAL) throw SystemError("cannot get the allowed processors", error);
  }
  throw SystemError("cannot get the allowed processors", EINVAL);
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = -1;
    auto stopped = std::from_chars(at, end, first);
    if (stopped.ec != std::errc{} || first < 0) return {};
    int last = first;
    if (stopped.ptr != end && *stopped.ptr == '-') {
      stopped = std::from_chars(stopped.ptr + 1, end, last);
      if (stopped.ec != std::errc{} || last < first || last - first > (1 << 20)) return {};
    }
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    if (stopped.ptr != end && *stopped.ptr != ',') return {};
    at = stopped.ptr == end ? end : stopped.ptr + 1;
  }
  return numbers;
}

}  // namespace lockstep
