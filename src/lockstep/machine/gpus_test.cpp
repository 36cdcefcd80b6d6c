#include "lockstep/machine/gpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/machine/test_nvml_internal.h"

namespace lockstep {
namespace {

using testing::FakeGpu;
using testing::FakeNvml;

namespace fs = std::filesystem;

// Cards as the files of a driver describe them.
class GpusTest : public ::testing::Test {
 protected:
  ~GpusTest() override { fs::remove_all(folder_); }

  void add_card(const std::string& bus, const std::string& uuid, const std::string& rest = "") {
    fs::create_directories(folder_ + "/gpus/" + bus);
    std::ofstream(folder_ + "/gpus/" + bus + "/information")
        << "Model: \t\t NVIDIA H200\nIRQ:   \t\t 17\nGPU UUID: \t " << uuid << "\n"
        << rest;
  }
  [[nodiscard]] GpuSources sources() {
    return {.driver_folder = folder_, .control_file = folder_ + "/nvidiactl", .nvml = [this] {
              ++loads_;
              return testing::functions_of(nvml_);
            }};
  }
  [[nodiscard]] std::vector<std::string> uuids(const Environment& environment) {
    std::vector<std::string> found;
    for (const auto& gpu : list_gpus(environment, GpuDetail::files, sources())) {
      found.push_back(gpu.uuid);
    }
    return found;
  }

  const std::string folder_ = ::testing::TempDir() + "gpus_" + std::to_string(::getpid());
  FakeNvml nvml_;
  int loads_ = 0;
};

TEST_F(GpusTest, AreTheCardsOfTheDriverInPciOrderWithoutNvml) {
  add_card("0000:3b:00.0", "GPU-b");
  add_card("0000:19:00.0", "GPU-a");
  add_card("0000:5c:00.0", "GPU-c", "GPU Excluded:\t Yes\n");
  const auto gpus = list_gpus({}, GpuDetail::files, sources());
  EXPECT_EQ(gpus, (std::vector<Gpu>{
                      {.name = "NVIDIA H200", .uuid = "GPU-a", .pci_bus = "0000:19:00.0"},
                      {.name = "NVIDIA H200", .uuid = "GPU-b", .pci_bus = "0000:3b:00.0"}}));
  EXPECT_EQ(loads_, 0);
  EXPECT_EQ(gpus_in_words(gpus), "2 × NVIDIA H200");
}

TEST_F(GpusTest, AreNoneWithoutADriverAndNvmlIsNotLoaded) {
  nvml_.gpus = {FakeGpu{.name = "unreachable", .uuid = "GPU-x"}};
  EXPECT_TRUE(list_gpus({}, GpuDetail::nvml, sources()).empty());
  EXPECT_EQ(loads_, 0);
  EXPECT_EQ(gpu_driver_version(sources()), "");
}

TEST_F(GpusTest, AreLimitedByCudaVisibleDevices) {
  add_card("0000:19:00.0", "GPU-a1");
  add_card("0000:3b:00.0", "GPU-b2");
  using List = std::vector<std::string>;
  const auto seen = [&](const char* value) { return uuids({{"CUDA_VISIBLE_DEVICES", value}}); };
  EXPECT_EQ(seen(""), List{});
  EXPECT_EQ(seen("-1"), List{});
  EXPECT_EQ(seen("NoDevFiles"), List{});
  EXPECT_EQ(seen("1"), List{"GPU-b2"});
  EXPECT_EQ(seen("1,0"), (List{"GPU-b2", "GPU-a1"}));
  EXPECT_EQ(seen(" 1 , 0"), (List{"GPU-b2", "GPU-a1"}));
  EXPECT_EQ(seen("0,1,2,3"), (List{"GPU-a1", "GPU-b2"}));
  EXPECT_EQ(seen("0,-1,1"), List{"GPU-a1"});
  EXPECT_EQ(seen("0,9,1"), List{"GPU-a1"});
  EXPECT_EQ(seen("1,1"), List{});
  EXPECT_EQ(seen("1gpu,0"), (List{"GPU-b2", "GPU-a1"}));
  EXPECT_EQ(seen("GPU-b"), List{"GPU-b2"});
  EXPECT_EQ(seen("GPU-b2,GPU-a1"), (List{"GPU-b2", "GPU-a1"}));
  EXPECT_EQ(seen("GPU-b2,GPU-b"), List{});
  EXPECT_EQ(seen("GPU-"), List{});  // names both
  EXPECT_EQ(seen("GPU-b2,0"), List{"GPU-b2"});
  EXPECT_EQ(seen("GPU-zz,GPU-a1"), List{});
  EXPECT_EQ(loads_, 0);
}

TEST_F(GpusTest, ComeFromNvmlWhereTheFilesDoNotSuffice) {
  nvml_.gpus = {FakeGpu{.name = "NVIDIA H200",
                        .uuid = "GPU-b",
                        .bus_id = "00000000:3B:00.0",
                        .memory = {std::uint64_t{139} << 30U, 0, 0}},
                FakeGpu{.name = "NVIDIA H200", .uuid = "GPU-a", .bus_id = "00000000:19:00.0"}};
  // A card that is not initialized has no UUID in its file.
  add_card("0000:3b:00.0", "GPU-\?\?\?\?-\?\?");
  EXPECT_EQ(uuids({}), std::vector<std::string>{""});
  EXPECT_EQ(uuids({{"CUDA_VISIBLE_DEVICES", "GPU-b"}}), std::vector<std::string>{"GPU-b"});
  EXPECT_EQ(loads_, 1);
  const auto gpus = list_gpus({}, GpuDetail::nvml, sources());
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].pci_bus, "0000:19:00.0");
  EXPECT_EQ(gpus[1].memory_bytes, std::size_t{139} << 30U);
  EXPECT_EQ(gpus_in_words(gpus), "1 × NVIDIA H200, 1 × NVIDIA H200 with 139 GiB");
  EXPECT_EQ(nvml_.initialized, 0);  // every session has ended
}

TEST_F(GpusTest, ComeFromTheFilesWhereNvmlDoesNotInitialize) {
  add_card("0000:19:00.0", "GPU-a");
  nvml_.error_of_init = 9;
  EXPECT_EQ(list_gpus({}, GpuDetail::nvml, sources()).size(), 1U);
}

TEST_F(GpusTest, ByMigNamesComeFromNvml) {
  add_card("0000:19:00.0", "GPU-a");
  nvml_.gpus = {
      FakeGpu{.name = "NVIDIA H200",
              .uuid = "GPU-a",
              .bus_id = "00000000:19:00.0",
              .mig_devices = {{.name = "1g", .uuid = "MIG-1"}, {.name = "2g", .uuid = "MIG-2"}}}};
  const auto gpus = list_gpus({{"CUDA_VISIBLE_DEVICES", "MIG-2"}}, GpuDetail::files, sources());
  EXPECT_EQ(gpus, (std::vector<Gpu>{{.name = "2g", .uuid = "MIG-2", .pci_bus = "0000:19:00.0"}}));
}

TEST(VisibleGpus, OfACardInMigModeAreOneMigDevice) {
  const std::vector<GpuCard> cards{{{.uuid = "GPU-a"}, {{.uuid = "MIG-1"}, {.uuid = "MIG-2"}}},
                                   {{.uuid = "GPU-b"}}};
  const auto seen = [&](const std::optional<std::string>& value) {
    std::vector<std::string> uuids;
    for (const auto& gpu : visible_gpus(cards, value)) uuids.push_back(gpu.uuid);
    return uuids;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(seen("MIG-2"), List{"MIG-2"});
  EXPECT_EQ(seen("MIG-2,MIG-1"), List{"MIG-2"});
  EXPECT_EQ(seen("MIG-3"), List{});
  EXPECT_EQ(seen("GPU-a"), List{"MIG-1"});
  EXPECT_EQ(seen("1,0"), List{"MIG-1"});
  EXPECT_EQ(seen("1"), List{"GPU-b"});
  EXPECT_EQ(seen(std::nullopt), List{"MIG-1"});
}

TEST_F(GpusTest, OfADriverHaveItsVersion) {
  fs::create_directories(folder_);
  std::ofstream(folder_ + "/version")
      << "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n";
  EXPECT_EQ(gpu_driver_version(sources()), "580.65.06");
}

TEST(PciBus, IsWrittenAsTheKernelDoes) {
  EXPECT_EQ(short_pci_bus("00000000:3B:00.0"), "0000:3b:00.0");
  EXPECT_EQ(short_pci_bus("00010000:3B:00.0"), "10000:3b:00.0");
  EXPECT_EQ(short_pci_bus("0000:3b:00.0"), "0000:3b:00.0");
}

}  // namespace
}  // namespace lockstep
