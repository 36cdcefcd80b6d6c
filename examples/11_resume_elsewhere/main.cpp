// A run stops in the middle of an epoch on four ranks and resumes on two, then on three: the same
// global batch, the same samples in the same steps, none lost, none repeated. The saved state is
// one line of text, equal on every rank. (Here each rank is a loader in one program, to show them
// all.)
#include <torch/torch.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using Samples = std::vector<std::int64_t>;

// Runs `steps` steps with `world` ranks, starting at `state` ("": the beginning). Returns the
// samples of each step over all ranks, and stores the state after the last step in `state`.
std::vector<Samples> run(const lockstep::Dataset& data, int world, int steps, std::string& state) {
  const auto sizes = lockstep::derive_batch_sizes({.world = world, .global = 12});
  std::printf("%s, from %s\n", lockstep::describe(sizes).c_str(),
              state.empty() ? "the beginning" : state.c_str());
  std::vector<Samples> seen(static_cast<std::size_t>(steps));
  std::string saved;
  for (int rank = 0; rank < world; ++rank) {
    lockstep::Loader loader(
        data, {.batch = sizes, .rank = rank, .order = {.seed = 7}, .workers = rank % 3});
    if (!state.empty()) loader.restore(lockstep::sampler_state_from_json(state));
    for (auto& step : seen) {
      const auto batch = loader.next();
      step.insert(step.end(), batch.samples.begin(), batch.samples.end());
    }
    saved = lockstep::to_json(loader.state());
  }
  state = saved;
  return seen;
}

int main() {
  const lockstep::TensorDataset data({{"input", torch::arange(100)}});
  std::string state;
  auto seen = run(data, 4, 3, state);
  for (const int world : {2, 3}) {
    for (auto& step : run(data, world, 5, state)) seen.push_back(std::move(step));
  }
  std::string beginning;
  const auto uninterrupted = run(data, 1, 13, beginning);
  std::printf("13 steps over two epochs: %s\n",
              seen == uninterrupted ? "the same samples as the uninterrupted run" : "WRONG");
  try {
    (void)run(data, 5, 1, state);
  } catch (const lockstep::UsageError& error) {
    std::printf("five ranks: %s\n", error.what());
  }
  return seen == uninterrupted && state == beginning ? 0 : 1;
}
