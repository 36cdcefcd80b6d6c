// The cost of the checks of room ddp, to compare with the time of a step. ddp_against_python
// compares whole steps with Python.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <cstring>

#include "lockstep/collectives/process_group.h"
#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/flat/walk.h"
#include "lockstep/kernels/noted_loops.h"
#include "lockstep/rendezvous/world.h"

namespace {

using namespace lockstep;

torch::nn::Sequential layers_of(std::int64_t width) {
  torch::nn::Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Linear(width, width));
  return net;
}

// Eight layers of the given width: the digest of one window, which a step computes.
void replica_check(benchmark::State& state) {
  auto net = layers_of(state.range(0));
  FlatParameters flat(*net, ProcessGroup(World::alone()));
  ReplicaCheck check;
  for (auto _ : state) check.look(flat, 1);
}
BENCHMARK(replica_check)->Arg(256)->Arg(1024)->Unit(benchmark::kMicrosecond);

// Sixteen parameters: is each still in the flat buffer?
void parameters_in_place(benchmark::State& state) {
  auto net = layers_of(64);
  const FlatParameters flat(*net, ProcessGroup(World::alone()));
  for (auto _ : state) {
    bool all = true;
    for (int i = 0; i < 16; ++i) all = all && flat.slots().is_in_place(i);
    benchmark::DoNotOptimize(all);
  }
}
BENCHMARK(parameters_in_place);

constexpr std::int64_t kElements = 16 << 20;

// A copy that detects non-finite values and a plain copy: the difference is the cost of the check.
// With ordinary stores, with non-temporal stores, and as the library chooses by size.
void copy_and_note(benchmark::State& state) {
  auto to = torch::zeros({state.range(0) / 4});
  const auto from = torch::ones({state.range(0) / 4});
  for (auto _ : state) benchmark::DoNotOptimize(copy_noting_non_finite(to, from));
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}
template <Caching caching>
void copy_and_note_by(benchmark::State& state) {
  auto to = torch::zeros({state.range(0) / 4});
  const auto from = torch::ones({state.range(0) / 4});
  const std::span elements(to.data_ptr<float>(), static_cast<std::size_t>(to.numel()));
  for (auto _ : state) {
    benchmark::DoNotOptimize(dispatch<NotedLoops, float>(best_instruction_set(), [&](auto loops) {
      return loops.copy(elements, from.const_data_ptr<float>(), caching);
    }));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}
void copy_and_note_cached(benchmark::State& state) { copy_and_note_by<Caching::through>(state); }
void copy_and_note_streamed(benchmark::State& state) { copy_and_note_by<Caching::past>(state); }
void copy_alone(benchmark::State& state) {
  auto to = torch::zeros({state.range(0) / 4});
  const auto from = torch::ones({state.range(0) / 4});
  for (auto _ : state) {
    std::memcpy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * 2);
}
// 64 KiB to 64 MiB: the sizes of gradients.
BENCHMARK(copy_alone)->RangeMultiplier(4)->Range(64 << 10, 64 << 20);
BENCHMARK(copy_and_note)->RangeMultiplier(4)->Range(64 << 10, 64 << 20);
BENCHMARK(copy_and_note_cached)->RangeMultiplier(4)->Range(1 << 20, 64 << 20);
BENCHMARK(copy_and_note_streamed)->RangeMultiplier(4)->Range(1 << 20, 64 << 20);

void norm(benchmark::State& state) {
  const auto flat = torch::ones({kElements});
  for (auto _ : state) benchmark::DoNotOptimize(squared_norm(flat));
  state.SetBytesProcessed(state.iterations() * kElements * 4);
}
BENCHMARK(norm)->Unit(benchmark::kMillisecond);

// A whole step of a small model in a world of one, with Ddp and without.
void bare_step(benchmark::State& state) {
  auto net = layers_of(state.range(0));
  const auto batch = torch::ones({32, state.range(0)});
  for (auto _ : state) {
    net->forward(batch).sum().backward();
    net->zero_grad();
  }
}
void ddp_step(benchmark::State& state) {
  auto net = layers_of(state.range(0));
  const auto batch = torch::ones({32, state.range(0)});
  Ddp ddp(*net, ProcessGroup(World::alone()));
  for (auto _ : state) {
    net->forward(batch).sum().backward();
    net->zero_grad();
  }
}
BENCHMARK(bare_step)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMicrosecond);
BENCHMARK(ddp_step)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMicrosecond);

}  // namespace
