#include "cli/doctor/probe.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "build_facts.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/launch/job.h"
#include "lockstep/machine/gpus.h"
#include "lockstep/machine/hidden_sve.h"
#include "lockstep/machine/processor_name.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/socket.h"

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string first_line(const std::string& path) {
  const auto text = text_of(path);
  return text.substr(0, text.find('\n'));
}

std::uint64_t number_in(const std::string& text, const std::string& name) {
  const auto value = value_in(text, name);
  return value.empty() ? 0 : std::strtoull(value.c_str(), nullptr, 10);
}

BuildFacts build_facts() {
  return {.version = std::string(kVersion),
          .torch = kBuildTorch,
          .compiler = kBuildCompiler,
          .type = kBuildType,
          .architecture = kBuildMachine,
          .cuda = kBuildCuda,
          .nccl = kBuildNccl,
          .mpi = kBuildMpi};
}

std::string system_name() {
  auto name = value_in(text_of("/etc/os-release"), "PRETTY_NAME");
  std::erase(name, '"');
  utsname kernel{};
  ::uname(&kernel);
  return fmt::format("{}, {} {}", name.empty() ? "unknown distribution" : name, kernel.sysname,
                     kernel.release);
}

LimitFacts limit_facts() {
  const auto soft = [](auto resource) -> std::uint64_t {
    rlimit limit{};
    return ::getrlimit(resource, &limit) == 0 ? limit.rlim_cur : 0;
  };
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  return {.descriptors = files.rlim_cur,
          .most_descriptors = files.rlim_max,
          .core_bytes = soft(RLIMIT_CORE),
          .processes = soft(RLIMIT_NPROC)};
}

// "always [madvise] never": the word in brackets.
std::string chosen_word(const std::string& text) {
  const auto begin = text.find('[');
  const auto end = text.find(']');
  return begin == std::string::npos || end < begin ? "" : text.substr(begin + 1, end - begin - 1);
}

MemoryFacts memory_facts() {
  const auto info = text_of("/proc/meminfo");
  MemoryFacts memory{.total = number_in(info, "MemTotal") * 1024,
                     .available = number_in(info, "MemAvailable") * 1024};
  memory.swap_used = (number_in(info, "SwapTotal") - number_in(info, "SwapFree")) * 1024;
  const auto limit = first_line("/sys/fs/cgroup/memory.max");
  if (!limit.empty() && limit != "max") {
    const auto most = std::strtoull(limit.c_str(), nullptr, 10);
    const auto used =
        std::strtoull(first_line("/sys/fs/cgroup/memory.current").c_str(), nullptr, 10);
    memory.total = std::min<std::uint64_t>(memory.total, most);
    memory.available = std::min<std::uint64_t>(memory.available, most > used ? most - used : 0);
  }
  memory.huge_pages = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  memory.balances_numa = first_line("/proc/sys/kernel/numa_balancing") == "1";
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) {
    memory.shm_size = std::uint64_t{shm.f_blocks} * shm.f_frsize;
    memory.shm_free = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  }
  struct statvfs here {};
  if (::statvfs(".", &here) == 0) {
    memory.disk_free = std::uint64_t{here.f_bavail} * here.f_frsize;
  }
  return memory;
}

bool is_clock_synchronized() {
  timex state{};
  return ::adjtimex(&state) != TIME_ERROR;
}

std::uint32_t count_ports() {
  std::istringstream range(first_line("/proc/sys/net/ipv4/ip_local_port_range"));
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  range >> first >> last;
  return last > first ? last - first + 1 : 0;
}

// Its contents are not read.
std::optional<std::uint32_t> secret_file_mode(const Environment& environment) {
  struct stat status {};
  try {
    if (::stat(default_secret_file(environment).c_str(), &status) != 0) return std::nullopt;
  } catch (const UsageError&) {  // HOME is not set
    return std::nullopt;
  }
  return status.st_mode & 0777;
}

}  // namespace

std::string value_in(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto end = line.find_first_of(":=");
    if (end == std::string::npos) continue;
    auto key = line.substr(0, end);
    while (!key.empty() && (key.back() == ' ' || key.back() == '\t')) key.pop_back();
    if (key != name) continue;
    const auto begin = line.find_first_not_of(" \t", end + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

DoctorFacts probe_system(const Environment& environment, int ranks) {
  DoctorFacts facts;
  utsname names{};
  ::uname(&names);
  facts.host = names.nodename;
  facts.build = build_facts();
  facts.machine = describe_machine(environment);
  for (const auto& gpu : list_gpus(environment, GpuDetail::nvml)) {
    facts.gpus.push_back(gpu.name.empty() ? gpu.uuid : gpu.name);
  }
  facts.driver = gpu_driver_version();
  facts.ranks = ranks > 0 ? ranks
                          : std::max({static_cast<int>(facts.gpus.size()),
                                      facts.gpus.empty() ? facts.machine.cpu.num_cores() : 1, 1});
  facts.processor = processor_name();
  facts.system = system_name();
  facts.sve_variable_set = environment.find(plain_processor_variable().first).has_value();
  facts.limits = limit_facts();
  facts.memory = memory_facts();
  facts.clock_synchronized = is_clock_synchronized();
  facts.num_ports = count_ports();
  facts.secret_mode = secret_file_mode(environment);
  return facts;
}

std::string probe_loopback(Deadline deadline, double& bytes_per_second) {
  try {
    auto listener = Listener::tcp("127.0.0.1");
    auto ours = Socket::connect(listener.endpoint(), deadline);
    auto theirs = listener.accept(deadline);
    constexpr std::size_t kPiece = 1 << 20;
    constexpr int kMostPieces = 1000;
    int sent = 0;
    const auto begin = Clock::now();
    std::string failure;
    {
      const std::jthread sender([&] {
        const std::vector<std::byte> piece(kPiece);
        try {
          while (sent < kMostPieces && Clock::now() - begin < std::chrono::milliseconds(200)) {
            ours.send_all(piece, deadline);
            ++sent;
          }
          ours = Socket::pair().first;  // closes: the end of the stream
        } catch (const Error& error) {
          failure = error.what();
        }
      });
      std::vector<std::byte> piece(kPiece);
      for (;;) {
        theirs.wait_readable(deadline);
        if (const auto count = theirs.try_receive(piece); count == 0) break;
      }
    }
    bytes_per_second = sent * static_cast<double>(kPiece) /
                       std::chrono::duration<double>(Clock::now() - begin).count();
    return failure;
  } catch (const Error& error) {
    return error.what();
  }
}

double measure_memory(Deadline deadline) {
  constexpr std::size_t kBytes = std::size_t{96} << 20;  // beyond the caches of most machines
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double best = 0;
  for (int i = 0; i < 3 && !deadline.expired(); ++i) {
    const auto begin = Clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    from[static_cast<std::size_t>(i)] = to[kBytes - 1];  // the copy has a use
    best = std::max(best, static_cast<double>(kBytes) / seconds);
  }
  return best;
}

}  // namespace lockstep::cli
