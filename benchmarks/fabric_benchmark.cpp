// The speed of a reduction on one core, compared with the in-place add that moves the same cache
// lines, and the cost of the check of a call. `lockstep bench comm` measures whole collectives.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "lockstep/fabric/call.h"
#include "lockstep/kernels/reduce.h"

namespace {

using namespace lockstep;

constexpr std::size_t kBytes = 64u << 20;  // of all sources together, larger than most caches

// Reads each of range(0) sources once and writes each once, as the direct algorithm does.
void push_of(benchmark::State& state, DType dtype) {
  const auto num_sources = static_cast<std::size_t>(state.range(0));
  const auto bytes = kBytes / num_sources;
  // Not zeros, whose pages may be unmapped. They soon grow to infinity, which is equally fast.
  std::vector<std::vector<std::byte>> spans(num_sources, std::vector(bytes, std::byte{0x3C}));
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (auto& span : spans) {
    sources.push_back(span.data());
    destinations.push_back(span.data());
  }
  const auto plan = TreePlan::over_ranks(static_cast<int>(num_sources));
  for (auto _ : state) {
    reduce({dtype, ReduceOp::sum}, plan, sources, destinations, bytes / bytes_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(2 * kBytes));
}
void push_float32(benchmark::State& state) { push_of(state, DType::float32); }
void push_bfloat16(benchmark::State& state) { push_of(state, DType::bfloat16); }
void push_float16(benchmark::State& state) { push_of(state, DType::float16); }
void push_int32(benchmark::State& state) { push_of(state, DType::int32); }
BENCHMARK(push_float32)->Arg(2)->Arg(3)->Arg(8)->Arg(16);
BENCHMARK(push_bfloat16)->Arg(2)->Arg(8);
BENCHMARK(push_float16)->Arg(2)->Arg(8);
BENCHMARK(push_int32)->Arg(2);

void in_place_add(benchmark::State& state) {
  std::vector<float> a(kBytes / 2 / sizeof(float));
  const std::vector<float> b(a.size(), 1.0F);
  for (auto _ : state) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(3 * kBytes / 2));
}
BENCHMARK(in_place_add);

// The cost that the check adds to a call among range(0) ranks: the descriptor, its signature, and
// the comparison of the ranks' signatures. For comparison: a call of 64 KiB takes 5 to 50 µs.
void check_of_a_call(benchmark::State& state) {
  const Call call{.kind = Collective::all_reduce,
                  .dtype = DType::float32,
                  .count = 16384,
                  .name = "gradients 12"};
  std::vector<std::uint64_t> signatures(static_cast<std::size_t>(state.range(0)));
  std::uint64_t number = 0;
  for (auto _ : state) {
    const auto signature = signature_of(descriptor_of(call), ++number, {1, 64, 64});
    bool equal = true;
    for (auto& other : signatures) {
      other = signature;
      benchmark::DoNotOptimize(other);
      equal = equal && other == signature;
    }
    benchmark::DoNotOptimize(equal);
  }
}
BENCHMARK(check_of_a_call)->Arg(2)->Arg(8)->Arg(16);

}  // namespace
