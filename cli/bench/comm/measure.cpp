#include "cli/bench/comm/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

namespace lockstep::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 3;
constexpr int kLeastIterations = 10;
constexpr int kMostIterations = 5000;
constexpr std::size_t kMostAddSamples = 61;
constexpr std::size_t kAddSampleBytes = 1u << 20;
// Not zero: an all-reduce in place may skip the write of zero sums (docs/collectives.md), and
// gradients are seldom zero.
constexpr int kNoZero = 0x3C;

int most_calls(const CommRequest& request) {
  return request.iterations > 0 ? std::max(request.iterations, kWarmUp) : kMostIterations;
}

// Of one array of the in-place add.
std::size_t add_length(std::size_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Buffers of one length in an arena, used in turn: enough of them that a buffer has left the caches
// when its turn comes again.
class Rotation {
 public:
  Rotation(std::span<std::byte> arena, std::size_t buffer_bytes, std::size_t rotation_bytes)
      : arena_(arena),
        buffer_bytes_(buffer_bytes),
        num_buffers_(std::clamp((rotation_bytes + buffer_bytes - 1) / buffer_bytes, std::size_t{1},
                                arena.size() / buffer_bytes)) {}

  [[nodiscard]] std::span<std::byte> next() {
    const auto buffer = arena_.subspan(next_ * buffer_bytes_, buffer_bytes_);
    next_ = (next_ + 1) % num_buffers_;
    return buffer;
  }
  void restart() { next_ = 0; }
  [[nodiscard]] int num_buffers() const { return static_cast<int>(num_buffers_); }

 private:
  std::span<std::byte> arena_;
  std::size_t buffer_bytes_;
  std::size_t num_buffers_;
  std::size_t next_ = 0;
};

CallMemory memory_in(std::span<std::byte> buffer, const BufferLayout& layout) {
  return {.input = buffer.first(layout.input_bytes),
          .output = buffer.subspan(layout.output_offset, layout.output_bytes)};
}

// One time per call: the maximum over all ranks. Calls follow each other without a pause, as the
// buckets of gradients do. A rooted call, where a rank can run ahead of the others, is preceded by
// a barrier, which is not timed.
template <typename NextBuffer>
std::vector<double> time_calls(TimedBackend& backend, const CommCase& timed,
                               const BufferLayout& layout, int iterations, NextBuffer next_buffer) {
  std::vector<double> seconds(static_cast<std::size_t>(iterations));
  for (auto& taken : seconds) {
    const auto memory = memory_in(next_buffer(), layout);
    if (has_root(timed.op)) backend.barrier();
    const auto begin = Clock::now();
    backend.call(timed, memory);
    taken = seconds_since(begin);
  }
  backend.max_over_ranks(seconds);
  return seconds;
}

int iterations_for(const CommRequest& request, const std::vector<double>& warm_up) {
  if (request.iterations > 0) return request.iterations;
  const double wanted = request.seconds / std::max(median(warm_up), 1e-7);
  return static_cast<int>(std::clamp(wanted, double{kLeastIterations}, double{kMostIterations}));
}

// One cache line per iteration: with one vector per iteration the loop, not the memory, is the
// limit.
__attribute__((noinline)) void add_in_place(float* __restrict sum, const float* __restrict other,
                                            std::size_t count) {
  constexpr std::size_t line = 64 / sizeof(float);  // buffers are whole lines
  for (std::size_t i = 0; i < count; i += line) {
    for (std::size_t lane = 0; lane < line; ++lane) sum[i + lane] += other[i + lane];
  }
}

// The number of ranks that run at the same time: ranks in excess of the processors take turns.
int ranks_at_once(const CommRequest& request) {
  std::set<int> processors;
  for (const auto& of_rank : request.processors) processors.insert(of_rank.begin(), of_rank.end());
  return std::min(request.ranks, static_cast<int>(processors.size()));
}

// The memory bandwidth of all ranks together while each adds arrays of `bytes` in place: two reads
// and one write. A sample consists of several adds where one add is too short for the clock. It is
// short enough that other load on the machine disturbs few samples; the result is their median.
double add_bytes_per_second(TimedBackend& backend, const CommRequest& request, std::size_t bytes) {
  constexpr std::size_t all_bytes = 256u << 20;
  const auto length = add_length(bytes);
  const auto arena = backend.arena(MemoryKind::ordinary);
  const auto half = arena.size() / 2 / kBufferAlignment * kBufferAlignment;
  const auto usable = std::min(length, half);  // an arena just large enough for one buffer
  Rotation sums(arena.first(half), usable, request.rotation_bytes / 2);
  Rotation others(arena.subspan(half), usable, request.rotation_bytes / 2);
  const auto adds = std::max(kAddSampleBytes / usable, std::size_t{1});
  const auto most =
      request.iterations > 0 ? static_cast<std::size_t>(request.iterations) : kMostAddSamples;
  const auto samples = std::clamp(all_bytes / (usable * adds), std::size_t{9}, kMostAddSamples);
  std::vector<double> seconds(std::min(samples, most));
  for (auto& taken : seconds) {
    backend.barrier();
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < adds; ++i) {
      add_in_place(reinterpret_cast<float*>(sums.next().data()),
                   reinterpret_cast<const float*>(others.next().data()), usable / sizeof(float));
    }
    taken = seconds_since(begin);
  }
  backend.max_over_ranks(seconds);
  return 3.0 * static_cast<double>(usable * adds) * ranks_at_once(request) / median(seconds);
}

CommSamples measure_case(TimedBackend& backend, const CommRequest& request, const CommCase& timed) {
  const auto layout = buffer_layout(timed, backend.rank(), request.ranks);
  const auto arena = backend.arena(timed.memory);
  CommSamples samples;
  Rotation rotation(arena, layout.buffer_bytes, request.rotation_bytes);
  const int used = std::min(rotation.num_buffers(), most_calls(request));
  // memset and not std::fill: a sanitizer checks its range once, and not each byte.
  std::memset(arena.data(), kNoZero, static_cast<std::size_t>(used) * layout.buffer_bytes);
  const auto rotated = [&] { return rotation.next(); };
  const auto same = [&] { return arena.first(layout.buffer_bytes); };
  const auto warm_up = time_calls(backend, timed, layout, kWarmUp, rotated);
  const int iterations = iterations_for(request, warm_up);
  // One call on each buffer: a rank maps the peers' pages at their first use, which in training is
  // the first step. The adds then evict the buffers from the caches.
  rotation.restart();
  (void)time_calls(backend, timed, layout, std::min(iterations, rotation.num_buffers()), rotated);
  if (request.on_one_host) {
    samples.add_bytes_per_second = add_bytes_per_second(backend, request, timed.bytes);
  }
  rotation.restart();
  samples.cold = time_calls(backend, timed, layout, iterations, rotated);
  (void)time_calls(backend, timed, layout, kWarmUp, same);
  samples.hot = time_calls(backend, timed, layout, std::max(iterations / 2, 1), same);
  return samples;
}

}  // namespace

std::size_t most_bytes_used(const CommRequest& request, const CommCase& timed) {
  const auto calls = static_cast<std::size_t>(most_calls(request)) *
                     buffer_layout(timed, 0, request.ranks).buffer_bytes;
  const auto samples = std::min(static_cast<std::size_t>(most_calls(request)), kMostAddSamples);
  const auto adds = 2 * samples * std::max(kAddSampleBytes, add_length(timed.bytes));
  return std::max(calls, adds);
}

CommAnswer measure(TimedBackend& backend, const CommRequest& request, const std::string& about) {
  CommAnswer answer{.about = about};
  for (const auto& timed : request.cases) {
    answer.samples.push_back(
        backend.can(timed) ? std::optional(measure_case(backend, request, timed)) : std::nullopt);
  }
  return answer;
}

}  // namespace lockstep::cli
