// all_reduce among ranks that share one GPU. Start it with the launcher:
//
//     lockstep run -n 2 --allow-shared-gpu build/…/device_comm_benchmark [ipc|staged] [MiB]
//
// Prints one line of JSON on rank 0. Times are device times, between two events of the caller's
// stream, which the ranks record after a barrier of the hosts: they include the hosts' time between
// two operations of a call. The slowest rank counts; its time includes the changes of the turn
// until all ranks have arrived and until it continues. last_ms is from the arrival of the last rank
// to the end of the call on all ranks, by the clock of the GPU. Nothing else keeps the device busy
// meanwhile, because ranks that share it take turns, and one would wait for the other's work.
// copy_ms is the time in which this rank,
// with all ranks copying at the same time, copies the same bytes within the device: an all_reduce
// reads and writes each byte of each rank at least once, as a copy does.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "device_stamp.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/launch/init.h"

namespace {

using lockstep::ProcessGroup;

constexpr int kRounds = 20;
constexpr int kInARow = 10;

// The median over rounds of the slowest rank's device time of `act`, in milliseconds.
double measure(const ProcessGroup& group, const std::function<void()>& act) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  (void)cudaEventCreate(&begin);
  (void)cudaEventCreate(&end);
  std::vector<double> times;
  for (int round = -3; round < kRounds; ++round) {
    torch::cuda::synchronize();
    group.barrier().wait();
    (void)cudaEventRecord(begin, nullptr);
    act();
    (void)cudaEventRecord(end, nullptr);
    torch::cuda::synchronize();
    float milliseconds = 0;
    (void)cudaEventElapsedTime(&milliseconds, begin, end);
    const auto all = lockstep::gather_values(group, static_cast<double>(milliseconds));
    if (round >= 0) times.push_back(*std::max_element(all.begin(), all.end()));
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// The median over rounds of the time from the last rank's arrival at `act` to its end on all ranks,
// in milliseconds.
double measure_from_last(const ProcessGroup& group, const std::function<void()>& act) {
  std::uint64_t* stamps = nullptr;  // in nanoseconds; pinned
  (void)cudaHostAlloc(reinterpret_cast<void**>(&stamps), 2 * sizeof(*stamps), cudaHostAllocDefault);
  const auto latest = [&](std::uint64_t stamp) {
    constexpr std::uint64_t kExact = 1'000'000'000'000'000;  // a double has more than these digits
    const auto all = lockstep::gather_values(group, static_cast<double>(stamp % kExact));
    return *std::max_element(all.begin(), all.end());
  };
  std::vector<double> times;
  for (int round = -3; round < kRounds; ++round) {
    torch::cuda::synchronize();
    group.barrier().wait();
    lockstep::stamp(stamps, nullptr);
    act();
    lockstep::stamp(stamps + 1, nullptr);
    torch::cuda::synchronize();
    const auto begin = latest(stamps[0]);
    const auto end = latest(stamps[1]);
    if (round >= 0) times.push_back((end - begin) * 1e-6);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string backend = argc > 1 ? argv[1] : "ipc";
  const std::int64_t bytes = (argc > 2 ? std::stol(argv[2]) : 25) << 20;
  auto world = lockstep::init();
  const ProcessGroup group(
      world, {.backend = backend == "ipc" ? lockstep::Backend::ipc : lockstep::Backend::staged});
  const torch::Device gpu(torch::kCUDA, 0);
  auto bucket = group.allocate(bytes, gpu).view(torch::kFloat);
  auto ordinary = torch::zeros_like(bucket);
  auto other = torch::zeros_like(bucket);
  const auto single = measure(group, [&] { group.all_reduce(bucket).wait(); });
  const auto last = measure_from_last(group, [&] { group.all_reduce(bucket).wait(); });
  const auto row = measure(group, [&] {
    for (int i = 0; i < kInARow; ++i) group.all_reduce(bucket).wait();
  });
  const auto unregistered = measure(group, [&] { group.all_reduce(ordinary).wait(); });
  const auto copy = measure(group, [&] { other.copy_(ordinary); });
  if (group.rank() == 0) {
    fmt::print(
        "{{\"backend\": \"{}\", \"ranks\": {}, \"mib\": {}, \"single_ms\": {:.4f}, "
        "\"last_ms\": {:.4f}, \"in_a_row_ms\": {:.4f}, \"unregistered_ms\": {:.4f}, \"copy_ms\": "
        "{:.4f}, \"share_of_copy\": {:.3f}}}\n",
        group.backend(gpu), group.size(), bytes >> 20, single, last, row / kInARow, unregistered,
        copy, copy / single);
    std::fflush(stdout);
  }
  return 0;
}
