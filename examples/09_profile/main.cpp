// Where the time of a step goes. A StepTimer divides each step into its parts; the figures of all
// ranks, compared at the end, say which rank the others wait for and what to change. Rank 1 reads
// its data slowly here. The program also measures what Ddp costs: the same steps without averaging.
//
// For a picture of single steps, start it with LOCKSTEP_PROFILE=10:20 and open profile.json in
// ui.perfetto.dev.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "lockstep/lockstep.h"
#include "lockstep/trace/interval_meter.h"
#include "lockstep/trace/run_analysis.h"

using lockstep::StepPart;

constexpr int kSteps = 60;

int main() {
  const auto world = lockstep::init();
  const lockstep::ProcessGroup group(world);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(),
                            torch::nn::Linear(256, 256), torch::nn::ReLU(),
                            torch::nn::Linear(256, 10));
  lockstep::Ddp ddp(*net, group);
  lockstep::SGD optimizer(ddp.flat(), {});
  const lockstep::TensorDataset data(
      {{"input", torch::randn({4096, 64})}, {"target", torch::randint(0, 10, {4096})}});
  lockstep::Loader loader(data,
                          {.batch = {.local = 64, .world = world.size()}, .rank = world.rank()});

  // One interval of steps. With `alone`, every rank trains for itself.
  const auto train = [&](int first, bool alone, bool slow_data) {
    lockstep::StepTimer timer({.page = &world.page()});
    lockstep::IntervalMeter meter;
    for (int step = first; step < first + kSteps; ++step) {
      timer.begin_step(step);
      timer.enter(StepPart::data_wait);
      const auto batch = loader.next();
      if (slow_data && world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      timer.enter(StepPart::forward);
      const auto loss = torch::cross_entropy_loss(net->forward(batch.input()), batch.target());
      timer.enter(StepPart::backward);
      if (alone) {
        const auto no_sync = ddp.no_sync();
        loss.backward();
      } else {
        loss.backward();
        timer.move(StepPart::exposed, ddp.record().exposed);  // waiting for gradients
        timer.enter(StepPart::optimizer);
        optimizer.step(0.01);
      }
      optimizer.zero_grad();
      meter.add(timer.end_step(), {.entered = last_entry(ddp.record()).time_since_epoch(),
                                   .reducing = reducing_time(ddp.record()),
                                   .launching = ddp.record().launching});
    }
    // The figures of every rank, in one call.
    const std::vector<double> entries(meter.entries().begin(), meter.entries().end());
    auto own = meter.read_and_reset();
    own.rank = world.rank();
    own.step = first + kSteps - 1;
    std::vector<lockstep::GatheredInterval> ranks;
    for (const auto& each :
         lockstep::gather_values(group, std::span<const double>(to_numbers(own, entries)))) {
      ranks.push_back(lockstep::interval_from_numbers(each));
    }
    compare_entries(ranks);  // which rank enters the last all-reduce last
    return ranks;
  };

  (void)train(1, false, false);  // allocations and caches
  const auto without_ddp = train(1 + kSteps, true, false);
  const auto with_ddp = train(1 + 2 * kSteps, false, false);
  const auto slow = train(1 + 3 * kSteps, false, true);

  lockstep::AnalysisInput even{.facts = {.step_ms_without_ddp = without_ddp[0].interval.step_ms}};
  lockstep::AnalysisInput uneven;
  for (const auto& rank : with_ddp) even.intervals.push_back(rank.interval);
  for (const auto& rank : slow) uneven.intervals.push_back(rank.interval);
  const auto analysis = analyse(uneven);
  if (world.rank() == 0) {
    std::printf("Equal ranks:\n%s\nRank 1 reads slowly:\n%s", to_text(analyse(even)).c_str(),
                to_text(analysis).c_str());
  }
  // A single rank waits for no other rank.
  const bool is_found =
      world.size() == 1 || (!analysis.stragglers.empty() && analysis.stragglers[0].rank == 1 &&
                            analysis.stragglers[0].cause == lockstep::Cause::data);
  return is_found ? 0 : 1;
}
