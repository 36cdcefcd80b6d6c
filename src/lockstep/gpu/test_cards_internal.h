// For tests. Ranks as threads with a GPU each, and one NCCL: doubles, which the calls of the suites
// use too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/gpu/test_device_suite_internal.h"
#include "lockstep/gpu/watcher.h"
#include "lockstep/shm/test_thread_memory_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

struct CardsSetting {
  int size = 2;
  std::uint64_t seed = 1;
  NcclReduction reduction = NcclReduction::exact;
  std::size_t stage_bytes = 4096;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  std::function<int(int rank)> device_of = [](int rank) { return rank; };
};

class Cards {
 public:
  explicit Cards(CardsSetting setting) : setting_(std::move(setting)) {
    SuiteDevice::set(SuiteDevice::Setting{
        .backend = BackendKind::nccl,
        .device = {.seed = setting_.seed, .num_devices = setting_.size},
        .stage_bytes = setting_.stage_bytes,
        .watcher = [] { return make_watcher({.query_interval = std::chrono::milliseconds(5)}); }});
  }
  Cards(const Cards&) = delete;
  Cards& operator=(const Cards&) = delete;
  ~Cards() { SuiteDevice::set(std::nullopt); }

  void run(const std::function<void(Group&)>& body) {
    const auto memory = std::make_shared<ThreadMemory>();
    testing::run_ranks_as_threads(setting_.size, [&](testing::Rank& self) {
      const auto with_devices = [&](Connect host) {
        auto options = SuiteDevice::options();
        options.nccl_ratios = ratios;
        options.nccl_reduction = reduction_of ? reduction_of(self.rank()) : setting_.reduction;
        return connect_with_devices(std::move(host), options);
      };
      body(*thread_group(memory, self.rank(), self.size(), {.timeout = setting_.timeout}, {},
                         with_devices));
    });
  }
  [[nodiscard]] Device device(int rank) const {
    return {DeviceKind::cuda, setting_.device_of(rank)};
  }
  [[nodiscard]] static DeviceDouble& device_double() { return SuiteDevice::get_double(); }
  [[nodiscard]] static NcclDouble& nccl() { return *SuiteDevice::nccl(); }

  std::function<NcclReduction(int rank)> reduction_of = {};
  std::filesystem::path ratios = {};

 private:
  CardsSetting setting_;
};

inline Call sum_of(std::span<float> values, const Device& device) {
  return {.kind = Collective::all_reduce,
          .dtype = DType::float32,
          .count = static_cast<std::int64_t>(values.size()),
          .name = "sum",
          .input = std::as_bytes(values),
          .output = std::as_writable_bytes(values),
          .device = device};
}

inline std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep
