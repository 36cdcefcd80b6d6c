#include "lockstep/machine/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/machine/core_plan.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Two nodes of two cores with two processors each: differs from every test computer.
Machine two_nodes() {
  return {.architecture = "x86_64",
          .cpu = {.nodes = {{{{{0, 4}}, {{1, 5}}}}, {{{{2, 6}}, {{3, 7}}}}}, .quota = 2.5},
          .caches = {{1, CacheKind::data, 48 << 10}, {3, CacheKind::unified, 32 << 20}},
          .num_gpus = 2,
          .gpus = {{"NVIDIA H200", "GPU-a", "0000:19:00.0", std::size_t{139} << 30U},
                   {"NVIDIA H200", "GPU-b", "0000:3b:00.0", std::size_t{139} << 30U}},
          .gpu_driver = "580.65.06",
          .host = "boot net:1 ipc:2"};
}

std::string refusal_of(const std::string& json) {
  try {
    (void)machine_from_json(json, "fake.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

class MachineFile : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_ = ::testing::TempDir() + "machine_file";
  std::string path_ = folder_ + "/machine.json";
};

TEST_F(MachineFile, WhatIsWrittenIsReadBack) {
  write_machine(path_, two_nodes());
  EXPECT_EQ(read_machine(path_), two_nodes());
  const auto own = describe_machine(Environment::of_process());
  write_machine(path_, own);
  EXPECT_EQ(read_machine(path_), own);
}

TEST_F(MachineFile, CoresOfAnotherMachineArePlannedFromItsFile) {
  write_machine(path_, two_nodes());
  const auto assignments = plan_cores(read_machine(path_).cpu, 2);
  EXPECT_EQ(assignments[0].processors, (std::vector{0, 1, 4, 5}));
  EXPECT_EQ(assignments[1].processors, (std::vector{2, 3, 6, 7}));
  EXPECT_EQ(assignments[1].threads, 1);  // the quota allows 1.25 per rank
}

TEST_F(MachineFile, AnythingButARegularFileIsRefused) {
  EXPECT_THROW((void)read_machine(path_), SystemError);
  EXPECT_THROW((void)read_machine(folder_), Error);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW((void)read_machine(path_), UsageError);  // and does not wait for a writer
  fs::remove(path_);
  std::ofstream(path_) << std::string(5 << 20, ' ');
  EXPECT_THROW((void)read_machine(path_), UsageError);
}

TEST(MachineJson, ARefusalNamesFileAndField) {
  const auto good = nlohmann::ordered_json::parse(to_json(two_nodes()));
  const auto with = [&](const std::string& field, nlohmann::ordered_json value) {
    auto json = good;
    json[field] = std::move(value);
    return refusal_of(json.dump());
  };
  EXPECT_EQ(refusal_of(good.dump()), "");
  EXPECT_EQ(with("num_gpus", "8"), "fake.json: num_gpus is not a whole number from 0 to 4096");
  EXPECT_EQ(with("num_gpus", -1), "fake.json: num_gpus is not a whole number from 0 to 4096");
  EXPECT_NE(with("num_gpus", 18446744073709551615U), "");
  EXPECT_NE(with("num_gpus", 1.5), "");
  EXPECT_EQ(with("hides_sve", 1), "fake.json: hides_sve is not true or false");
  EXPECT_EQ(with("cpu_quota", 0), "fake.json: cpu_quota is not a number above 0");
  EXPECT_EQ(with("cpu_quota", nullptr), "fake.json: cpu_quota is not a number above 0");
  EXPECT_EQ(with("format", "other"), "fake.json: format is not \"lockstep-machine\"");
  EXPECT_EQ(with("version", 2), "fake.json: version is not a whole number from 1 to 1");
  EXPECT_NE(with("num_cores", 4).find("unknown field \"num_cores\""), std::string::npos);
  for (const auto& field : good.items()) {
    if (field.key() == "cpu_quota" || field.key() == "gpus" || field.key() == "gpu_driver")
      continue;
    auto json = good;
    json.erase(field.key());
    EXPECT_EQ(refusal_of(json.dump()), "fake.json: " + field.key() + " is missing");
  }
}

TEST(MachineJson, InvalidNodesAndCachesAreRefused) {
  const auto good = nlohmann::ordered_json::parse(to_json(two_nodes()));
  for (const char* nodes : {"[]", "[[]]", "[[[]]]", "[[[0],[0]]]", "[[[-1]]]", "[[[1048576]]]",
                            "[[0]]", "[0]", "{}", "null", "[[[\"0\"]]]"}) {
    auto json = good;
    json["nodes"] = nlohmann::ordered_json::parse(nodes);
    EXPECT_NE(refusal_of(json.dump()).find("nodes"), std::string::npos) << nodes;
  }
  for (const char* cache :
       {"7", "{}", R"({"level":0,"kind":"data","bytes":1})",
        R"({"level":1,"kind":"warm","bytes":1})", R"({"level":1,"kind":"data","bytes":0})",
        R"({"level":1,"kind":"data","bytes":1,"ways":8})"}) {
    auto json = good;
    json["caches"] = {nlohmann::ordered_json::parse(cache)};
    EXPECT_NE(refusal_of(json.dump()), "") << cache;
  }
}

TEST(MachineJson, GpusMayBeAbsentAndAreOtherwiseValidated) {
  const auto good = nlohmann::ordered_json::parse(to_json(two_nodes()));
  auto json = good;
  json.erase("gpus");
  json.erase("gpu_driver");
  json["num_gpus"] = 8;
  const auto machine = machine_from_json(json.dump(), "old.json");
  EXPECT_EQ(machine.num_gpus, 8);
  EXPECT_EQ(machine_lines(machine)[2], "8 GPUs");
  json = good;
  json["num_gpus"] = 3;
  EXPECT_EQ(refusal_of(json.dump()),
            "fake.json: gpus is not a list of 3 GPUs, the number in num_gpus");
  for (const char* gpus :
       {"7", R"([7,7])", R"([{},{}])", R"([{"name":1,"uuid":"","pci_bus":"","memory_bytes":0},{}])",
        R"([{"name":"","uuid":"","pci_bus":"","memory_bytes":-1},{}])",
        R"([{"name":"","uuid":"","pci_bus":"","memory_bytes":0,"sms":132},{}])"}) {
    json = good;
    json["gpus"] = nlohmann::ordered_json::parse(gpus);
    EXPECT_NE(refusal_of(json.dump()), "") << gpus;
  }
  json = good;
  json["gpu_driver"] = 580;
  EXPECT_EQ(refusal_of(json.dump()), "fake.json: gpu_driver is not a text");
}

TEST(MachineJson, TruncatedTextIsRefusedAtEveryLength) {
  const auto whole = to_json(two_nodes());
  for (std::size_t length = 0; length + 2 < whole.size(); ++length) {
    EXPECT_NE(refusal_of(whole.substr(0, length)), "") << length;
  }
  EXPECT_NE(refusal_of("[]"), "");
  EXPECT_NE(refusal_of(std::string(100'000, '[')), "");
}

TEST_F(MachineFile, CachesAreTheLargestOfEachLevelThatTheKernelLists) {
  const auto write = [&](int processor, int index, const char* level, const char* type,
                         const char* size) {
    const auto folder = fs::path(folder_) / "devices/system/cpu" /
                        ("cpu" + std::to_string(processor)) / "cache" /
                        ("index" + std::to_string(index));
    fs::create_directories(folder);
    std::ofstream(folder / "level") << level << '\n';
    std::ofstream(folder / "type") << type << '\n';
    std::ofstream(folder / "size") << size << '\n';
  };
  write(0, 0, "1", "Data", "64K");
  write(0, 1, "1", "Instruction", "32K");
  write(0, 2, "3", "Unified", "33M");
  write(3, 0, "1", "Data", "128K");
  Machine machine;
  machine.caches = read_caches(std::vector{0, 3}, folder_);
  EXPECT_EQ(machine.caches, (std::vector<CpuCache>{{1, CacheKind::data, 128 << 10},
                                                   {1, CacheKind::instruction, 32 << 10},
                                                   {3, CacheKind::unified, 33 << 20}}));
  EXPECT_EQ(machine.last_level_cache(), std::size_t{33} << 20);
  EXPECT_TRUE(read_caches(std::vector{1}, folder_).empty());
  EXPECT_EQ(Machine{}.last_level_cache(), 0U);
}

TEST(MachineLines, ListCoresCachesAndGpus) {
  auto machine = two_nodes();
  EXPECT_EQ(
      machine_lines(machine),
      (std::vector<std::string>{"4 cores with 8 processors on 2 NUMA nodes, quota 2.5 processors",
                                "caches L1 48 KiB, L3 32 MiB",
                                "2 GPUs: 2 × NVIDIA H200 with 139 GiB, driver 580.65.06"}));
  machine = {.cpu = {.nodes = {{{{{0}}}}}}, .hides_sve = true};
  EXPECT_EQ(
      machine_lines(machine),
      (std::vector<std::string>{"1 core on 1 NUMA node", "caches unknown", "0 GPUs",
                                "SVE is hidden: LibTorch programs need NVPL_BLAS_DEBUG_CPU_TYPE=1; "
                                "lockstep sets it for the ranks it starts"}));
}

}  // namespace
}  // namespace lockstep
