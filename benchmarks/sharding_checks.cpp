// What keeps one copy per host safe, as a part of a training step: the barrier at the end of
// step(), and the digests of a rank's shards and state. Bar: at most 1 % of a step of an MLP 8 x
// 1024.
//
//   lockstep run -n 2 build/release/benchmarks/sharding_checks
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "bars.h"
#include "lockstep/flat/shard_check.h"
#include "lockstep/lockstep.h"

namespace {

using Seconds = std::chrono::duration<double>;

/// The median time of a call.
template <typename Call>
double seconds_of(int times, const Call& call) {
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    all.push_back(Seconds(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[static_cast<std::size_t>(times / 2)];
}

}  // namespace

int main() {
  const auto world = lockstep::init();
  at::set_num_threads(1);
  const lockstep::ProcessGroup group(world);
  torch::nn::Sequential net;
  for (int i = 0; i < 8; ++i) net->push_back(torch::nn::Linear(1024, 1024));
  lockstep::Ddp ddp(*net, group,
                    {.shard = lockstep::Shard::optimizer, .copies = lockstep::Copies::per_host});
  lockstep::AdamW optimizer(ddp.flat());
  const auto input = torch::randn({32, 1024});
  const auto step = seconds_of(40, [&] {
    net->forward(input).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  });
  const auto barrier = seconds_of(2000, [&] { group.barrier().wait(); });
  // Two checks, of values and of state: each digests a window twice per step.
  const auto count = ddp.flat().shards().packed_length(0);
  const auto values = torch::zeros({count});
  const auto state = torch::zeros({2, count});
  lockstep::ShardCheck check;
  bool changed = false;
  const auto checks = seconds_of(640, [&] {
    for (const auto* memory : {&values, &state}) {
      check.note({*memory});
      changed = check.find_change({*memory}).has_value() || changed;
    }
  });
  if (changed) return 1;
  if (group.rank() != 0) return 0;
  const auto share = (barrier + checks) / step;
  lockstep::print_bar(fmt::format("barrier and digests of shards, {} ranks", group.size()),
                      fmt::format("{:.2f} % of a step of {:.1f} ms ({:.1f} us and {:.1f} us)",
                                  100 * share, 1e3 * step, 1e6 * barrier, 1e6 * checks),
                      "1 %", share <= 0.01);
  return 0;
}
