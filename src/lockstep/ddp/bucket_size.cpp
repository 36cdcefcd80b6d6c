#include "lockstep/ddp/bucket_size.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t kSmallest = 256U << 10;
constexpr std::size_t kMostMeasured = 64U << 20;
constexpr double kNearly = 1.1;
constexpr int kRounds = 3;

double seconds_to_reduce(const ProcessGroup& group, const at::Tensor& memory, std::int64_t bucket) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Work> works;
  for (std::int64_t at = 0; at < memory.numel(); at += bucket) {
    auto part = memory.slice(0, at, std::min(memory.numel(), at + bucket));
    works.push_back(group.all_reduce(part, ReduceOp::average, {.name = "measuring buckets"}));
  }
  for (auto& work : works) work.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::size_t measure_bucket_bytes(const ProcessGroup& group, std::size_t total_bytes,
                                 at::Device device) {
  const auto measured = std::clamp(total_bytes, kSmallest, kMostMeasured) / 64 * 64;
  const auto memory = group.allocate(static_cast<std::int64_t>(measured), device).view(at::kFloat);
  std::vector<std::pair<std::size_t, double>> best;
  for (auto bytes = kSmallest; bytes < measured; bytes *= 2) {
    best.emplace_back(bytes, std::numeric_limits<double>::max());
  }
  best.emplace_back(measured, std::numeric_limits<double>::max());
  for (int round = 0; round < kRounds; ++round) {
    for (auto& [bytes, seconds] : best) {
      const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
      seconds = std::min(seconds, seconds_to_reduce(group, memory, elements));
    }
  }
  const auto fastest = std::min_element(best.begin(), best.end(), [](auto& a, auto& b) {
                         return a.second < b.second;
                       })->second;
  const auto chosen = std::find_if(
      best.begin(), best.end(), [&](const auto& each) { return each.second <= kNearly * fastest; });
  auto agreed = at::zeros({1}, at::kLong).fill_(static_cast<std::int64_t>(chosen->first));
  group.broadcast(agreed, 0, {.name = "bucket size"}).wait();
  return static_cast<std::size_t>(agreed.item<std::int64_t>());
}

}  // namespace lockstep
