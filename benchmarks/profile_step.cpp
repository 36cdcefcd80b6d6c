// The cost of a profile in wall time: steps of GPT-tiny with Ddp and AdamW, recorded and not
// recorded in turns, in the same ranks on the same memory. Bar: 0.5 % of a step.
//   lockstep run -n 2 benchmarks/profile_step [ROUNDS]
// A round is one step without, two with and one without a recording, so that drift cancels. Its
// result is the ratio of the two sums of times, of the slowest rank. Another thread drains the
// events of every step, as that of `lockstep train --profile` does. Rank 0 prints the median of the
// rounds, and the bounds between which it lies with a probability of 95 %.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/lockstep.h"
#include "models/gpt.h"

namespace {

using namespace lockstep;

constexpr int kBlock = 1;  // steps
constexpr int kWarmUp = 4;
constexpr std::int64_t kBatch = 8;  // as `lockstep train gpt`
// Steps from this number on are recorded; the others have the numbers below it.
constexpr std::int64_t kRecorded = 1'000'000'000;

// Drains a trace when a recorded step has ended.
class Drain {
 public:
  Drain()
      : trace({.window = {.first = kRecorded}, .on_step = [this](bool /*last*/) { tell(); }}),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  [[nodiscard]] std::size_t num_events() {
    const std::lock_guard lock(mutex_);
    return num_events_;
  }

  Trace trace;

 private:
  void tell() {
    const std::lock_guard lock(mutex_);
    has_step_ = true;
    changed_.notify_one();
  }
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return has_step_; })) {
      has_step_ = false;
      lock.unlock();
      const auto count = trace.drain().size();
      lock.lock();
      num_events_ += count;
    }
  }

  std::mutex mutex_;  // guards the three members below
  std::condition_variable_any changed_;
  bool has_step_ = false;
  std::size_t num_events_ = 0;
  std::jthread thread_;  // the last member: it uses the others
};

class Training {
 public:
  Training(const ProcessGroup& group, Trace& trace)
      : timer_({.trace = &trace}), ddp_(*gpt_, group, {.trace = &trace}), optimizer_(ddp_.flat()) {}

  void step(bool recorded) {
    timer_.begin_step(++number_ + (recorded ? kRecorded : 0));
    timer_.enter(StepPart::forward);
    const auto loss = torch::cross_entropy_loss(gpt_(tokens_).flatten(0, 1), targets_);
    timer_.enter(StepPart::backward);
    loss.backward();
    timer_.enter(StepPart::optimizer);
    optimizer_.step();
    optimizer_.zero_grad();
    (void)timer_.end_step();
  }

  // Seconds of some steps.
  double block(bool recorded, int steps) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step(recorded);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  models::GptOptions shape_ = models::gpt_shape("tiny");
  models::Gpt gpt_{shape_};
  at::Tensor tokens_ = torch::randint(shape_.vocabulary, {kBatch, shape_.context});
  at::Tensor targets_ = torch::randint(shape_.vocabulary, {kBatch * shape_.context});
  std::int64_t number_ = 0;
  StepTimer timer_;
  Ddp ddp_;
  AdamW optimizer_;
};

void report(std::vector<double> costs, double step_ms, double events) {
  std::sort(costs.begin(), costs.end());
  const auto count = static_cast<double>(costs.size());
  const auto at = [&](double position) {
    const auto index = static_cast<std::ptrdiff_t>(std::lround(position));
    return 100 * costs[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(
                     index, 0, static_cast<std::ptrdiff_t>(costs.size()) - 1))];
  };
  const double middle = (count - 1) / 2;
  const double half = 1.96 * std::sqrt(count) / 2;  // ranks of a binomial distribution
  fmt::print(
      "{} rounds, steps of {:.1f} ms, {:.0f} events per recorded step\n"
      "wall time: median {:+.3f} %, 95 % of it {:+.3f} to {:+.3f} %, quartiles {:+.3f} to {:+.3f} "
      "% (bar 0.5 %)\n",
      costs.size(), step_ms, events, at(middle), at(middle - half), at(middle + half),
      at(count / 4), at(3 * count / 4));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 150;
  const auto world = init();
  const ProcessGroup group(world);
  torch::manual_seed(1);
  Drain drain;
  Training training(group, drain.trace);
  (void)training.block(false, kWarmUp);
  (void)training.block(true, kWarmUp);
  const auto before = drain.num_events();
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    double without = training.block(false, kBlock);
    const double with = training.block(true, 2 * kBlock);
    without += training.block(false, kBlock);
    all.insert(all.end(), {without, with});
  }
  auto slowest = torch::tensor(all, torch::kFloat64);
  group.all_reduce(slowest, ReduceOp::max).wait();
  if (world.rank() != 0) return 0;
  const auto* const times = slowest.data_ptr<double>();
  std::vector<double> costs;
  double sum = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto at = 2 * static_cast<std::ptrdiff_t>(round);
    costs.push_back(times[at + 1] / times[at] - 1);
    sum += times[at];
  }
  report(costs, 1000 * sum / (2 * kBlock * rounds),
         static_cast<double>(drain.num_events() - before) / (2 * kBlock * rounds));
}
