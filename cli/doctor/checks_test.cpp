#include "cli/doctor/checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace lockstep::cli {
namespace {

// A machine on which every line is green.
DoctorFacts healthy() {
  DoctorFacts facts;
  facts.host = "node0";
  facts.ranks = 2;
  facts.build = {.version = "0.2.0",
                 .torch = "2.11.0",
                 .compiler = "GNU 12.2.0",
                 .type = "Release",
                 .architecture = "x86_64"};
  facts.torch = {.started = true, .loaded = "2.11.0+cpu", .library = "/opt/libtorch/lib"};
  facts.machine.architecture = "x86_64";
  facts.machine.cpu.nodes = {{.cores = {{.processors = {0}}, {.processors = {1}}}}};
  facts.processor = "Example 9000";
  facts.system = "Debian 12, Linux 6.1";
  facts.limits = {.descriptors = 1024, .most_descriptors = 524288};
  facts.memory = {.total = 16ull << 30,
                  .available = 12ull << 30,
                  .huge_pages = "madvise",
                  .shm_size = 8ull << 30,
                  .shm_free = 8ull << 30,
                  .disk_free = 100ull << 30};
  facts.num_ports = 28232;
  facts.memory_bytes_per_second = 10e9;
  facts.loopback_bytes_per_second = 5e9;
  facts.all_reduce = {.ran = true, .passed = true, .text = "1 MiB in 40 us", .seconds = 1};
  facts.training = {.ran = true, .passed = true, .text = "20 steps", .seconds = 4};
  return facts;
}

CheckLine line_of(const std::vector<CheckLine>& lines, const std::string& name) {
  const auto found = std::ranges::find(lines, name, &CheckLine::name);
  EXPECT_NE(found, lines.end()) << name;
  return found == lines.end() ? CheckLine{} : *found;
}

TEST(DoctorChecks, AHealthyNodeIsGreenAndHasNothingToFix) {
  for (const auto& line : check_node(healthy())) {
    EXPECT_EQ(line.verdict, Verdict::green) << line.name << ": " << line.found;
    EXPECT_EQ(line.fix, "") << line.name;
    EXPECT_NE(line.found, "") << line.name;
  }
}

struct Fault {
  std::string line;  // the only line that changes
  Verdict verdict;
  std::string found;  // a part of it
  std::string fix;
  std::function<void(DoctorFacts&)> inject;
};

TEST(DoctorChecks, EachFaultChangesItsLineAndNoOther) {
  const std::vector<Fault> faults{
      {"LibTorch", Verdict::red, "built with 2.11.0, but 2.9.1 is loaded", "LD_LIBRARY_PATH",
       [](auto& f) { f.torch.loaded = "2.9.1"; }},
      {"LibTorch", Verdict::red, "libtorch.so: cannot open", "tools/bootstrap",
       [](auto& f) { f.torch = {.error = "libtorch.so: cannot open shared object file"}; }},
      {"/dev/shm", Verdict::red, "64 MiB free of 64 MiB", "--shm-size",
       [](auto& f) { f.memory.shm_size = f.memory.shm_free = 64u << 20; }},
      {"/dev/shm", Verdict::red, "no /dev/shm", "--shm-size",
       [](auto& f) { f.memory.shm_size = f.memory.shm_free = 0; }},
      {"/dev/shm", Verdict::yellow, "512 MiB", "--shm-size",
       [](auto& f) { f.memory.shm_free = 512u << 20; }},
      {"descriptors", Verdict::red, "2 ranks need 78", "ulimit",
       [](auto& f) { f.limits.descriptors = f.limits.most_descriptors = 77; }},
      {"descriptors", Verdict::yellow, "64 (at most 524288)", "ulimit -n",
       [](auto& f) { f.limits.descriptors = 64; }},
      {"ports", Verdict::red, "127.0.0.1:4711", "firewall",
       [](auto& f) { f.loopback_failure = "cannot connect to 127.0.0.1:4711: timed out"; }},
      {"ports", Verdict::red, "node 1 does not reach", "ip_local_port_range",
       [](auto& f) { f.link = LinkFacts{.failure = "node 1 does not reach 10.0.0.1:4711"}; }},
      {"ports", Verdict::yellow, "12 ports", "sysctl", [](auto& f) { f.num_ports = 12; }},
      {"clock", Verdict::red, "+2.500 s against node 0", "set-ntp",
       [](auto& f) { f.link = LinkFacts{.clock_skew = 2.5, .clock_error = 0.01}; }},
      {"clock", Verdict::red, "-2.500 s", "set-ntp",
       [](auto& f) { f.link = LinkFacts{.clock_skew = -2.5, .clock_error = 0.01}; }},
      {"clock", Verdict::yellow, "+0.200 s", "set-ntp",
       [](auto& f) { f.link = LinkFacts{.clock_skew = 0.2, .clock_error = 0.01}; }},
      {"clock", Verdict::yellow, "no time service", "chrony",
       [](auto& f) { f.clock_synchronized = false; }},
      {"cgroup quota", Verdict::red, "1.50 processors for 2 ranks", "-n 1",
       [](auto& f) { f.machine.cpu.quota = 1.5; }},
      {"cgroup quota", Verdict::red, "0.50 processors", "-n 1",
       [](auto& f) { f.machine.cpu.quota = 0.5; }},
      {"build", Verdict::yellow, "Debug", "release", [](auto& f) { f.build.type = "Debug"; }},
      {"processor", Verdict::yellow, "SVE is hidden", "export",
       [](auto& f) { f.machine.hides_sve = true; }},
      {"memory", Verdict::red, "200 MiB per rank", "fewer ranks",
       [](auto& f) { f.memory.available = 400u << 20; }},
      {"swap", Verdict::yellow, "4.0 GiB", "swapoff",
       [](auto& f) { f.memory.swap_used = 4ull << 30; }},
      {"huge pages", Verdict::yellow, "never", "madvise",
       [](auto& f) { f.memory.huge_pages = "never"; }},
      {"disk", Verdict::red, "10 MiB", "another disk",
       [](auto& f) { f.memory.disk_free = 10u << 20; }},
      {"secret file", Verdict::red, "mode 644", "chmod 600", [](auto& f) { f.secret_mode = 0644; }},
      {"GPUs", Verdict::yellow, "has no CUDA", "bootstrap",
       [](auto& f) { f.gpus = {"NVIDIA H200"}; }},
      {"GPUs", Verdict::red, "can use none", "nvidia-smi",
       [](auto& f) {
         f.gpus = {"NVIDIA H200"};
         f.build.cuda = true;
       }},
      {"rates", Verdict::yellow, "1.0 GB/s", "other programs",
       [](auto& f) { f.memory_bytes_per_second = 1e9; }},
      {"all-reduce", Verdict::red, "wrong sum", "bench comm",
       [](auto& f) { f.all_reduce = {.ran = true, .text = "wrong sum"}; }},
      {"training", Verdict::red, "did not end within 30 s", "--debug-small",
       [](auto& f) { f.training = {.ran = true, .text = "did not end within 30 s"}; }},
  };
  const auto before = check_node(healthy());
  for (const auto& fault : faults) {
    auto facts = healthy();
    fault.inject(facts);
    const auto lines = check_node(facts);
    const auto line = line_of(lines, fault.line);
    EXPECT_EQ(line.verdict, fault.verdict) << fault.line << ": " << line.found;
    EXPECT_NE(line.found.find(fault.found), std::string::npos) << line.found;
    EXPECT_NE(line.fix.find(fault.fix), std::string::npos) << line.fix;
    ASSERT_EQ(lines.size(), before.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].name == fault.line) continue;
      EXPECT_EQ(lines[i].verdict, Verdict::green)
          << fault.line << " also changes " << lines[i].name;
    }
    EXPECT_EQ(worst_of(lines), fault.verdict);
  }
}

TEST(DoctorChecks, ASkewWithinItsErrorIsGreen) {
  auto facts = healthy();
  facts.link = LinkFacts{.clock_skew = 0.3, .clock_error = 0.25, .bytes_per_second = 1e9};
  EXPECT_EQ(line_of(check_node(facts), "clock").verdict, Verdict::green);
}

TEST(DoctorChecks, NodesThatDifferAreNamedWithBothValues) {
  const auto one = healthy();
  const auto compare = [&one](const DoctorFacts& facts) {
    return compare_nodes(std::vector{compared_values(one), compared_values(facts)});
  };
  EXPECT_TRUE(compare_nodes(std::vector{compared_values(one)}).empty());
  auto other = one;
  other.host = "node1";
  const auto same = compare(other);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].verdict, Verdict::green);
  other.torch.loaded = "2.9.1";
  other.processor = "Example 100";
  const auto lines = compare(other);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(line_of(lines, "LibTorch").verdict, Verdict::red);
  EXPECT_EQ(line_of(lines, "LibTorch").found, "node0: 2.11.0+cpu; node1: 2.9.1");
  EXPECT_EQ(line_of(lines, "processor").verdict, Verdict::yellow);
}

TEST(DoctorChecks, WhatWasLeftOutHasNoLine) {
  auto facts = healthy();
  facts.training = {};
  facts.memory_bytes_per_second = 0;
  const auto lines = check_node(facts);
  EXPECT_EQ(std::ranges::find(lines, "training", &CheckLine::name), lines.end());
  EXPECT_EQ(std::ranges::find(lines, "rates", &CheckLine::name), lines.end());
}

}  // namespace
}  // namespace lockstep::cli
