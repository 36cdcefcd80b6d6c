#include "cli/doctor/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/machine/hidden_sve.h"

namespace lockstep::cli {
namespace {

constexpr double kMega = 1 << 20;
constexpr double kGiga = 1 << 30;

// The launcher has six descriptors per rank; a rank one per peer, and files, loader and store.
std::uint64_t descriptors_needed(int ranks) {
  return 64 + 7 * static_cast<std::uint64_t>(std::max(ranks, 1));
}
constexpr std::uint64_t kShmRed = 64u << 20;  // Docker's default, too small for NCCL and MPI
constexpr std::uint64_t kShmYellow = 1u << 30;
constexpr std::uint64_t kMemoryRed = 256u << 20;  // per rank: LibTorch alone takes about as much
constexpr std::uint64_t kMemoryYellow = 1u << 30;
constexpr std::uint64_t kDiskRed = 64u << 20;
constexpr std::uint64_t kDiskYellow = 2ull << 30;
constexpr double kSkewRed = 1.0;  // seconds; logs and file times of nodes are in wrong order
constexpr double kSkewYellow = 0.1;
constexpr double kSlowMemory = 2e9;  // bytes per second of one core; ordinary machines have 5e9 on

std::string size_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value < kGiga ? fmt::format("{:.0f} MiB", value / kMega)
                       : fmt::format("{:.1f} GiB", value / kGiga);
}

std::string rate_text(double rate) { return fmt::format("{:.1f} GB/s", rate / 1e9); }

CheckLine green(std::string name, std::string found) {
  return {std::move(name), Verdict::green, std::move(found)};
}
CheckLine yellow(std::string name, std::string found, std::string fix) {
  return {std::move(name), Verdict::yellow, std::move(found), std::move(fix)};
}
CheckLine red(std::string name, std::string found, std::string fix) {
  return {std::move(name), Verdict::red, std::move(found), std::move(fix)};
}

CheckLine check_build(const BuildFacts& build) {
  auto found = fmt::format("lockstep {}, {}, {}, {}", build.version, build.type, build.compiler,
                           build.architecture);
  if (build.type == "Release" || build.type == "RelWithDebInfo") return green("build", found);
  return yellow("build", found, "figures of this build are slow: `cmake --preset release`");
}

CheckLine check_torch(const DoctorFacts& facts) {
  const auto& torch = facts.torch;
  if (!torch.started) {
    return red("LibTorch", torch.error,
               fmt::format("run `tools/bootstrap` and build again, or add the folder of LibTorch "
                           "{} to LD_LIBRARY_PATH",
                           facts.build.torch));
  }
  const auto plain = [](const std::string& version) {
    return version.substr(0, version.find('+'));
  };
  if (plain(torch.loaded) != plain(facts.build.torch)) {
    return red("LibTorch",
               fmt::format("built with {}, but {} is loaded from {}", facts.build.torch,
                           torch.loaded, torch.library),
               fmt::format("remove that folder from LD_LIBRARY_PATH, or build lockstep with {}",
                           torch.loaded));
  }
  return green("LibTorch", fmt::format("{} from {}", torch.loaded, torch.library));
}

CheckLine check_processor(const DoctorFacts& facts) {
  const auto& cpu = facts.machine.cpu;
  const auto found =
      fmt::format("{}, {} core{}, {}", facts.processor.empty() ? "unknown" : facts.processor,
                  cpu.num_cores(), cpu.num_cores() == 1 ? "" : "s", facts.machine.architecture);
  if (!facts.machine.hides_sve || facts.sve_variable_set) return green("processor", found);
  const auto [variable, value] = plain_processor_variable();
  return yellow("processor", found + ", SVE is hidden by the virtual machine",
                fmt::format("lockstep sets {0}={1} for its ranks; `export {0}={1}` for other "
                            "programs that use LibTorch, also in Python",
                            variable, value));
}

CheckLine check_numa(const DoctorFacts& facts) {
  const auto nodes = facts.machine.cpu.nodes.size();
  auto found = fmt::format("{} node{}", nodes, nodes == 1 ? "" : "s");
  if (nodes > 1 && facts.memory.balances_numa) {
    return yellow("NUMA", found + ", the kernel moves pages between them",
                  "`sysctl kernel.numa_balancing=0`: ranks are pinned, so moves only cost time");
  }
  return green("NUMA", std::move(found));
}

CheckLine check_quota(const DoctorFacts& facts) {
  const auto quota = facts.machine.cpu.quota;
  const int cores = facts.machine.cpu.num_cores();
  if (quota && *quota + 0.01 < facts.ranks) {
    return red(
        "cgroup quota",
        fmt::format("{:.2f} processors for {} ranks: the kernel stops them for part of "
                    "the time",
                    *quota, facts.ranks),
        fmt::format("start at most {} (-n {}), or raise the quota (docker --cpus, "
                    "limits.cpu of Kubernetes, CPUQuota of systemd)",
                    std::max(1, static_cast<int>(*quota)), std::max(1, static_cast<int>(*quota))));
  }
  if (facts.ranks > cores) {
    return yellow("cgroup quota", fmt::format("{} ranks on {} cores", facts.ranks, cores),
                  fmt::format("start at most {} ranks (-n {}); ranks that share a core wait for "
                              "each other",
                              cores, cores));
  }
  return green("cgroup quota", quota ? fmt::format("{:.2f} processors", *quota) : "none");
}

CheckLine check_memory(const DoctorFacts& facts) {
  const auto per_rank = facts.memory.available / static_cast<std::uint64_t>(facts.ranks);
  const auto found =
      fmt::format("{} of {} available, {} per rank", size_text(facts.memory.available),
                  size_text(facts.memory.total), size_text(per_rank));
  const auto fix = "end other programs, or start fewer ranks";
  if (per_rank < kMemoryRed) return red("memory", found, fix);
  if (per_rank < kMemoryYellow) return yellow("memory", found, fix);
  return green("memory", found);
}

CheckLine check_huge_pages(const MemoryFacts& memory) {
  if (memory.huge_pages != "never") {
    return green("huge pages", memory.huge_pages.empty() ? "unknown" : memory.huge_pages);
  }
  return yellow("huge pages", "never",
                "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`");
}

CheckLine check_swap(const MemoryFacts& memory) {
  if (memory.swap_used <= memory.total / 10) {
    return green("swap", fmt::format("{} in use", size_text(memory.swap_used)));
  }
  return yellow("swap", fmt::format("{} in use", size_text(memory.swap_used)),
                "a rank that is swapped out delays all others: end other programs, then "
                "`swapoff -a && swapon -a`");
}

CheckLine check_shm(const MemoryFacts& memory) {
  const auto found = memory.shm_size == 0 ? std::string("there is no /dev/shm")
                                          : fmt::format("{} free of {}", size_text(memory.shm_free),
                                                        size_text(memory.shm_size));
  const std::string fix =
      "`mount -o remount,size=2g /dev/shm`, or `docker run --shm-size=2g`, or an emptyDir of "
      "medium Memory in Kubernetes; NCCL and Open MPI need it (lockstep's own transport does not)";
  if (memory.shm_free <= kShmRed) return red("/dev/shm", found, fix);
  if (memory.shm_free < kShmYellow) return yellow("/dev/shm", found, fix);
  return green("/dev/shm", found);
}

CheckLine check_descriptors(const DoctorFacts& facts) {
  const auto needed = descriptors_needed(facts.ranks);
  const auto found =
      fmt::format("{} (at most {})", facts.limits.descriptors, facts.limits.most_descriptors);
  if (facts.limits.most_descriptors < needed) {
    return red("descriptors", fmt::format("{}, but {} ranks need {}", found, facts.ranks, needed),
               fmt::format("`ulimit -Hn {0}` as root, LimitNOFILE={0} of systemd, or `docker run "
                           "--ulimit nofile={0}`",
                           std::max<std::uint64_t>(needed, 65536)));
  }
  if (facts.limits.descriptors < std::min<std::uint64_t>(needed, 256)) {
    return yellow("descriptors", found,
                  "lockstep raises it for its ranks; `ulimit -n 4096` for other programs");
  }
  return green("descriptors", found);
}

CheckLine check_cores(const LimitFacts& limits) {
  return green("core files",
               limits.core_bytes == 0
                   ? "off; a crash prints its stack anyway (`ulimit -c unlimited` for gdb)"
                   : "on");
}

CheckLine check_disk(const MemoryFacts& memory) {
  const auto found = fmt::format("{} free in this folder", size_text(memory.disk_free));
  const auto fix = "free some space, or train with --run on another disk";
  if (memory.disk_free < kDiskRed) return red("disk", found, fix);
  if (memory.disk_free < kDiskYellow) return yellow("disk", found, fix);
  return green("disk", found);
}

CheckLine check_clock(const DoctorFacts& facts) {
  const std::string fix =
      "start a time service on every node: `timedatectl set-ntp true`, or chrony";
  if (facts.link && facts.link->failure.empty()) {
    const auto skew = facts.link->clock_skew;
    const auto certain = std::max(0.0, std::abs(skew) - facts.link->clock_error);
    const auto found =
        fmt::format("{:+.3f} s against node 0 (± {:.3f} s)", skew, facts.link->clock_error);
    if (certain > kSkewRed) return red("clock", found, fix);
    if (certain > kSkewYellow) return yellow("clock", found, fix);
    return green("clock", found);
  }
  if (!facts.clock_synchronized) {
    return yellow("clock", "no time service adjusts it", fix + "; one node alone does not need it");
  }
  return green("clock", "adjusted by a time service");
}

CheckLine check_ports(const DoctorFacts& facts) {
  if (!facts.loopback_failure.empty()) {
    return red("ports", facts.loopback_failure,
               "ranks of one node meet on 127.0.0.1: allow it in the firewall (`iptables -I INPUT "
               "-i lo -j ACCEPT`), and bring the interface up (`ip link set lo up`)");
  }
  if (facts.link && !facts.link->failure.empty()) {
    return red("ports", facts.link->failure,
               "open the TCP ports of net.ipv4.ip_local_port_range between the nodes in both "
               "directions, or give --rendezvous the address of an interface that the nodes share");
  }
  if (facts.num_ports < 1000) {
    return yellow("ports", fmt::format("{} ports for listeners", facts.num_ports),
                  "`sysctl net.ipv4.ip_local_port_range=\"32768 60999\"`");
  }
  return green("ports", facts.link ? "reachable from node 0 and back" : "loopback works");
}

CheckLine check_gpus(const DoctorFacts& facts) {
  if (facts.gpus.empty()) {
    return green("GPUs", facts.driver.empty() ? "none" : "none visible; driver " + facts.driver);
  }
  const auto found = fmt::format("{}; driver {}", fmt::join(facts.gpus, ", "), facts.driver);
  if (!facts.build.cuda) {
    return yellow("GPUs", found + "; this build has no CUDA",
                  "install a CUDA compiler (`tools/bootstrap`) and configure again");
  }
  if (facts.torch.started && facts.torch.num_gpus == 0) {
    return red("GPUs", found + "; LibTorch can use none of them",
               "the driver is older than LibTorch's CUDA, or this LibTorch is the CPU one: "
               "`nvidia-smi`, then update the driver or fetch the CUDA wheel");
  }
  return green("GPUs", found);
}

std::string library_text(bool built, const std::string& version) {
  if (version.empty()) return built ? "in this build; no library found" : "not in this build";
  return built ? version : fmt::format("{}; not in this build", version);
}

CheckLine check_secret(const DoctorFacts& facts) {
  if (!facts.secret_mode) return green("secret file", "none yet; several nodes create one");
  if ((*facts.secret_mode & 077) == 0) return green("secret file", "readable by you only");
  return red("secret file", fmt::format("others can read it (mode {:o})", *facts.secret_mode),
             "`chmod 600 ~/.config/lockstep/secret`, and replace it: it may be known");
}

CheckLine check_rates(const DoctorFacts& facts) {
  auto found =
      fmt::format("memory {} per core, loopback {}", rate_text(facts.memory_bytes_per_second),
                  rate_text(facts.loopback_bytes_per_second));
  if (facts.link && facts.link->failure.empty()) {
    found += fmt::format(", to node 0 {}", rate_text(facts.link->bytes_per_second));
  }
  if (facts.memory_bytes_per_second < kSlowMemory) {
    return yellow("rates", found, "other programs use this machine now; `top` shows them");
  }
  return green("rates", found);
}

CheckLine check_trial(std::string name, const TrialFacts& trial, std::string fix) {
  const auto found = fmt::format("{} ({:.1f} s)", trial.text, trial.seconds);
  return trial.passed ? green(std::move(name), found) : red(std::move(name), found, std::move(fix));
}

struct Compared {
  const char* name;
  std::string (*value)(const DoctorFacts&);
  Verdict verdict;
  const char* fix;
};

constexpr char kSameBuild[] = "install the same build on every node";
constexpr char kSlowest[] = "the slowest node sets the pace";

using Facts = const DoctorFacts&;
constexpr std::array kCompared{
    Compared{"lockstep", [](Facts f) { return f.build.version; }, Verdict::red, kSameBuild},
    Compared{"LibTorch", [](Facts f) { return f.torch.loaded; }, Verdict::red, kSameBuild},
    Compared{"build", [](Facts f) { return f.build.type + ", " + f.build.compiler; },
             Verdict::yellow, kSameBuild},
    Compared{"architecture", [](Facts f) { return f.machine.architecture; }, Verdict::red,
             "replicas on different architectures do not stay bit-identical: use one kind of node"},
    Compared{"processor", [](Facts f) { return f.processor; }, Verdict::yellow, kSlowest},
    Compared{"cores", [](Facts f) { return std::to_string(f.machine.cpu.num_cores()); },
             Verdict::yellow, "give -n on each node, so that ranks have equal cores"},
    Compared{"GPUs", [](Facts f) { return fmt::format("{}", fmt::join(f.gpus, ", ")); },
             Verdict::yellow, kSlowest},
    Compared{"driver", [](Facts f) { return f.driver; }, Verdict::yellow,
             "use one driver on all nodes"},
    Compared{"huge pages", [](Facts f) { return f.memory.huge_pages; }, Verdict::yellow,
             "use one setting on all nodes"},
    Compared{"system", [](Facts f) { return f.system; }, Verdict::yellow,
             "use one image on all nodes"},
};

}  // namespace

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::green:
      return "green";
    case Verdict::yellow:
      return "yellow";
    case Verdict::red:
      return "red";
  }
  return "unknown";
}

std::vector<CheckLine> check_node(const DoctorFacts& facts) {
  std::vector<CheckLine> lines{check_build(facts.build),
                               green("system", facts.system),
                               check_torch(facts),
                               check_gpus(facts),
                               green("NCCL", library_text(facts.build.nccl, facts.torch.nccl)),
                               green("MPI", library_text(facts.build.mpi, facts.mpi)),
                               check_processor(facts),
                               check_numa(facts),
                               check_quota(facts),
                               check_memory(facts),
                               check_huge_pages(facts.memory),
                               check_swap(facts.memory),
                               check_shm(facts.memory),
                               check_descriptors(facts),
                               check_cores(facts.limits),
                               check_disk(facts.memory),
                               check_clock(facts),
                               check_ports(facts),
                               check_secret(facts)};
  if (facts.memory_bytes_per_second > 0) lines.push_back(check_rates(facts));
  if (facts.all_reduce.ran) {
    lines.push_back(check_trial("all-reduce", facts.all_reduce,
                                "correct the red lines above first; then run `lockstep bench comm "
                                "-n 2` and read its output"));
  }
  if (facts.training.ran) {
    lines.push_back(check_trial("training", facts.training,
                                "correct the red lines above first; then run `lockstep train gpt "
                                "--debug-small -n 2 --steps 20` and read its output"));
  }
  return lines;
}

NodeValues compared_values(const DoctorFacts& facts) {
  NodeValues node{.host = facts.host, .values = {}};
  for (const auto& each : kCompared) node.values.push_back(each.value(facts));
  return node;
}

std::vector<CheckLine> compare_nodes(std::span<const NodeValues> nodes) {
  if (nodes.size() < 2) return {};
  std::vector<CheckLine> lines;
  for (std::size_t i = 0; i < kCompared.size(); ++i) {
    std::vector<std::string> texts;
    bool equal = true;
    for (const auto& node : nodes) {
      const auto value = i < node.values.size() ? node.values[i] : std::string();
      equal = equal && value == nodes.front().values[i];
      texts.push_back(fmt::format("{}: {}", node.host, value.empty() ? "none" : value));
    }
    if (equal) continue;
    lines.push_back({kCompared[i].name, kCompared[i].verdict,
                     fmt::format("{}", fmt::join(texts, "; ")), kCompared[i].fix});
  }
  if (lines.empty()) lines.push_back(green("nodes", "equal in all that was compared"));
  return lines;
}

Verdict worst_of(std::span<const CheckLine> lines) noexcept {
  Verdict worst = Verdict::green;
  for (const auto& line : lines) worst = std::max(worst, line.verdict);
  return worst;
}

}  // namespace lockstep::cli
