// Measures the one-shot threshold: a one-shot call saves one wait, but every rank reads every
// input.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <vector>

#include "lockstep/fabric/group.h"
#include "lockstep/shm/data_plane_internal.h"

namespace lockstep {
namespace {

constexpr std::array<std::size_t, 7> kSizes{256,      512,      1U << 10, 2U << 10,
                                            4U << 10, 8U << 10, 16U << 10};
constexpr int kCalls = 8;  // timed together: a single call seems short on the rank that enters last
constexpr int kRuns = 3;   // the minimum is used: disturbances only make a run longer

void all_reduce(Group& group, std::span<std::byte> span, std::size_t times) {
  const Call call{.kind = Collective::all_reduce,
                  .dtype = DType::float32,
                  .count = static_cast<std::int64_t>(span.size() / sizeof(float)),
                  .name = "one-shot threshold",
                  .input = span,
                  .output = span};
  for (std::size_t i = 0; i < times; ++i) group.wait(*group.start(call, nullptr), std::nullopt);
}

std::int64_t best_nanoseconds(Group& group, std::span<std::byte> span) {
  using Clock = std::chrono::steady_clock;
  auto best = std::numeric_limits<std::int64_t>::max();
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = Clock::now();
    all_reduce(group, span, kCalls);
    best = std::min<std::int64_t>(best, (Clock::now() - begin).count());
  }
  return best;
}

// Makes every rank touch every inline buffer. The first access is a page fault, and one-shot calls,
// which read all buffers, would otherwise seem slow.
void warm_up(Group& group, ShmDataPlane& plane, std::span<std::byte> span) {
  plane.set_one_shot_bytes(span.size());
  all_reduce(group, span.first(kSmallInlineBytes), kMaxCallsInFlight);
  all_reduce(group, span, kMaxCallsInFlight);
}

}  // namespace

std::size_t measure_one_shot_bytes(Group& group, ShmDataPlane& plane) {
  // Ordinary memory: in registered memory, larger inputs are reduced in place.
  std::vector<float> numbers(kSizes.back() / sizeof(float));
  const auto memory = std::as_writable_bytes(std::span(numbers));
  warm_up(group, plane, memory);
  std::size_t found = kSizes.front() / 2;  // below the first size one-shot has always been faster
  for (const auto size : kSizes) {
    const auto span = memory.first(size);
    plane.set_one_shot_bytes(size);
    const auto one_shot = best_nanoseconds(group, span);
    plane.set_one_shot_bytes(0);
    const auto two_shot = best_nanoseconds(group, span);
    if (one_shot <= two_shot && found == size / 2) found = size;
  }
  // Measurements differ between ranks: all use the value of rank 0.
  std::uint64_t agreed = found;
  const auto bytes = std::as_writable_bytes(std::span(&agreed, 1));
  Call call{.kind = Collective::broadcast,
            .count = static_cast<std::int64_t>(bytes.size()),
            .name = "one-shot threshold"};
  if (group.rank() == 0) {
    call.input = bytes;
  } else {
    call.output = bytes;
  }
  plane.set_one_shot_bytes(kSizes.front());
  group.wait(*group.start(call, nullptr), std::nullopt);
  return agreed;
}

}  // namespace lockstep
