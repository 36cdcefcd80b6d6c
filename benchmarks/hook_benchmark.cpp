// The cost of gradient hooks: a training step with a hook that only all-reduces, in both forms,
// relative to the same step without a hook.
//   LOCKSTEP_RANKS=2 hook_benchmark [WIDTH BATCH [ROUNDS]]
// All three models take turns in the same ranks, so that other programs disturb all of them; the
// median of the ratios of a round counts. Bar: 0.5 % of a step.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "bars.h"
#include "ddp_against_python/fused_adamw.h"
#include "ddp_against_python/subject.h"
#include "lockstep/lockstep.h"

namespace {

using namespace lockstep;

HookTask all_reduce_task(GradientBucket& bucket) { co_await bucket.all_reduce(bucket.values()); }

class Candidate {
 public:
  Candidate(const SubjectOptions& options, const ProcessGroup& group)
      : subject_(make_subject(options, group.rank())),
        ddp_(*subject_.model, group),
        optimizer_(subject_.model->parameters(), {.lr = 1e-5}) {}

  void set_hook(const GradientHook& hook) { ddp_.set_hook(hook); }

  double seconds_of_step(const ProcessGroup& group) {
    group.barrier().wait();
    const auto begin = std::chrono::steady_clock::now();
    subject_.loss().backward();
    optimizer_.step();
    optimizer_.zero_grad();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  Subject subject_;
  Ddp ddp_;
  FusedAdamW optimizer_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  const ProcessGroup group(world);
  const SubjectOptions options{.model = "mlp",
                               .size = num_arguments > 2 ? std::atoll(arguments[1]) : 1024,
                               .batch = num_arguments > 2 ? std::atoll(arguments[2]) : 32};
  const int rounds = num_arguments > 3 ? std::atoi(arguments[3]) : 101;
  Candidate without(options, group);
  Candidate simple(options, group);
  Candidate coroutine(options, group);
  simple.set_hook(all_reduce_hook());
  coroutine.set_hook({all_reduce_task, "coroutine"});
  const std::array<Candidate*, 3> all{&without, &simple, &coroutine};
  std::array<std::vector<double>, 3> seconds;
  constexpr int kWarmUp = 3;
  for (int round = 0; round < kWarmUp + rounds; ++round) {
    std::array<double, 3> of_round{};
    // Each of them is first in a third of the rounds.
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto turn = (i + static_cast<std::size_t>(round)) % all.size();
      of_round[turn] = all[turn]->seconds_of_step(group);
    }
    if (round < kWarmUp) continue;
    for (std::size_t i = 0; i < all.size(); ++i) seconds[i].push_back(of_round[i]);
  }
  if (world.rank() != 0) return 0;
  fmt::print("mlp {}, batch {}, {} ranks: {:.3f} ms per step without a hook\n", options.size,
             options.batch, world.size(), 1e3 * median(seconds[0]));
  for (std::size_t i = 1; i < all.size(); ++i) {
    std::vector<double> ratios;
    for (std::size_t round = 0; round < seconds[i].size(); ++round) {
      ratios.push_back(seconds[i][round] / seconds[0][round]);
    }
    const double percent = 100 * (median(ratios) - 1);
    print_bar(fmt::format("a hook that only all-reduces, {}", i == 1 ? "simple form" : "coroutine"),
              fmt::format("{:+.2f} % of a step", percent), "<= 0.5 %", percent <= 0.5);
  }
  return 0;
}
