#include "lockstep/trace/process_usage.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

void read_memory(const std::string& root, ProcessUsage& usage) {
  std::ifstream file(root + "/proc/self/statm");
  double pages = 0;
  if (file >> pages >> pages) {
    usage.rss_bytes = pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }
}

// "run time, time on the run queue, slices", in nanoseconds.
void read_run_queue(const std::string& root, ProcessUsage& usage) {
  std::ifstream file(root + "/proc/thread-self/schedstat");
  double run = 0;
  double waited = 0;
  if (file >> run >> waited) usage.run_queue_seconds = 1e-9 * waited;
}

void read_steal(const std::string& root, ProcessUsage& usage) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::ifstream file(root + "/proc/stat");
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu")) break;
    std::istringstream words(line.substr(3));
    if (line[3] == ' ') continue;  // the sum over all processors
    std::size_t processor = 0;
    words >> processor;
    if (processor >= CPU_SETSIZE || !CPU_ISSET(processor, &allowed)) continue;
    // user, nice, system, idle, iowait, irq, softirq, steal
    std::array<double, 8> times{};
    for (auto& time : times) words >> time;
    for (const auto time : times) usage.processor_seconds += time / per_second;
    usage.steal_seconds += times[7] / per_second;
  }
}

// The time for which the cgroup of cpu.stat at `path` was throttled; 0 if there is no such file.
double throttled(const std::string& path) {
  std::ifstream file(path + "/cpu.stat");
  std::string name;
  for (double value = 0; file >> name >> value;) {
    if (name == "throttled_usec") return 1e-6 * value;
    if (name == "throttled_time") return 1e-9 * value;
  }
  return 0;
}

// A container often sees its own cgroup as the root.
void read_throttling(const std::string& root, ProcessUsage& usage) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    auto path = line.substr(second + 1);
    std::string base = root + "/sys/fs/cgroup";
    if (controllers == "cpu" || controllers.find("cpu,") != std::string::npos ||
        controllers.ends_with(",cpu")) {
      base += "/" + controllers;
    } else if (!controllers.empty()) {
      continue;
    }
    while (true) {
      usage.throttled_seconds =
          std::max(usage.throttled_seconds, throttled(path == "/" ? base : base + path));
      if (path.empty() || path == "/") break;
      const auto slash = path.rfind('/');
      path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
    }
  }
}

}  // namespace

ProcessUsage read_process_usage(const std::string& root) {
  ProcessUsage usage;
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) == 0) {
    usage.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    usage.peak_rss_bytes = 1024 * static_cast<double>(used.ru_maxrss);
  }
  if (::getrusage(RUSAGE_THREAD, &used) == 0) {
    usage.voluntary_switches = used.ru_nvcsw;
    usage.involuntary_switches = used.ru_nivcsw;
  }
  read_memory(root, usage);
  read_run_queue(root, usage);
  read_steal(root, usage);
  read_throttling(root, usage);
  return usage;
}

}  // namespace lockstep
