// A training loop with one fault, for injected_test.py: injected FOLDER CAUSE [fixed]. It writes
// the rows that `lockstep train` writes to FOLDER/metrics.jsonl, and rank 0 prints the analysis as
// JSON, with the time per micro-batch. With `fixed` the advice is followed.
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "cli/train/program/rank_log.h"
#include "cli/train/program/reporter.h"
#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"

namespace {

using namespace std::chrono_literals;
using lockstep::StepPart;

constexpr int kInterval = 10;
constexpr int kLateRank = 1;

struct Plan {
  int steps = 60;
  std::int64_t width = 192;  // of the layers
  int layers = 6;
  int pieces = 0;  // a model of this many parameters that nearly nothing is computed with
  lockstep::Backend backend = lockstep::Backend::automatic;
  int workers = 0;
  int accumulate = 1;
  std::size_t bucket_bytes = lockstep::kDefaultBucketBytes;
  std::chrono::milliseconds read{0};   // per batch, on the late rank
  std::chrono::milliseconds extra{0};  // of computing per batch, on the late rank
};

Plan plan_for(const std::string& cause, bool fixed) {
  Plan plan;
  if (cause == "data") {
    plan.read = 30ms;
    plan.workers = fixed ? 2 : 0;
  } else if (cause == "compute") {
    plan.extra = fixed ? 0ms : 20ms;
  } else if (cause == "link") {
    plan.backend = lockstep::Backend::tcp;  // the test makes the loopback device slow
    plan.accumulate = fixed ? 2 : 1;
  } else if (cause == "hosts") {  // the test makes one of them slow
    plan.steps = 30;
  } else if (cause == "small_buckets") {
    // A layer takes longer than a call on a fast machine: with layers, the fault would cost little.
    plan.width = 8;
    plan.layers = 0;
    plan.pieces = 1000;
    if (!fixed) plan.bucket_bytes = 1;
  } else if (cause != "none" && cause != "throttled" && cause != "processor") {
    throw lockstep::UsageError("unknown cause " + cause);
  }
  return plan;
}

// Samples that take time to read.
class SlowData final : public lockstep::Dataset {
 public:
  SlowData(const torch::Tensor& input, std::chrono::milliseconds delay)
      : data_({{"input", input}}), delay_(delay) {}

  [[nodiscard]] std::int64_t size() const override { return data_.size(); }
  [[nodiscard]] const lockstep::SampleLayout& layout() const override { return data_.layout(); }
  [[nodiscard]] std::string name() const override { return "slow data"; }
  [[nodiscard]] std::uint64_t id() const override { return data_.id(); }
  void read(std::span<const std::int64_t> samples, const lockstep::Rows& rows) const override {
    if (delay_ > 0ms) std::this_thread::sleep_for(delay_);
    data_.read(samples, rows);
  }

 private:
  lockstep::TensorDataset data_;
  std::chrono::milliseconds delay_;
};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(const Plan& plan) {
    for (int i = 0; i < plan.layers; ++i) {
      layers->push_back(torch::nn::Linear(plan.width, plan.width));
      layers->push_back(torch::nn::Tanh());
    }
    register_module("layers", layers);
    for (int i = 0; i < plan.pieces; ++i) {
      pieces.push_back(register_parameter("piece" + std::to_string(i), torch::randn({plan.width})));
    }
  }
  torch::Tensor forward(const torch::Tensor& input) {
    auto output = layers->is_empty() ? input : layers->forward(input);
    if (!pieces.empty()) output = output * torch::stack(pieces).sum(0);
    return output.square().mean();
  }
  torch::nn::Sequential layers;
  std::vector<torch::Tensor> pieces;
};
TORCH_MODULE(Net);

void compute_for(std::chrono::milliseconds time, Net& net, const torch::Tensor& input) {
  const torch::NoGradGuard no_grad;
  const auto end = lockstep::StepClock::now() + time;
  while (lockstep::StepClock::now() < end) (void)net->forward(input);
}

void run(const std::string& folder, const std::string& cause, bool fixed) {
  const auto world = lockstep::init();
  const auto plan = plan_for(cause, fixed);
  const lockstep::ProcessGroup group(world, {.backend = plan.backend});
  const bool is_late = world.rank() == kLateRank;
  torch::manual_seed(1);
  Net net(plan);
  lockstep::Ddp ddp(*net, group,
                    {.bucket_bytes = plan.bucket_bytes, .accumulate = plan.accumulate});
  torch::optim::SGD optimizer(net->parameters(), 1e-4);
  const SlowData data(torch::randn({4096, plan.width}), is_late ? plan.read : 0ms);
  lockstep::Loader loader(
      data, {.batch = {.local = 32, .accumulation = plan.accumulate, .world = world.size()},
             .rank = world.rank(),
             .workers = plan.workers});

  lockstep::cli::Reporter reporter({.rank = world.rank(), .folder = folder, .tensorboard = false},
                                   lockstep::Environment::of_process());
  lockstep::cli::RankLog log(
      world, group, reporter,
      {.facts = {.workers = plan.workers, .bucket_bytes = static_cast<double>(plan.bucket_bytes)}});
  lockstep::StepTimer timer({.page = &world.page()});
  for (int step = 1; step <= plan.steps; ++step) {
    timer.begin_step(step);
    auto begin = lockstep::StepClock::now();
    for (bool ends_step = false; !ends_step;) {
      timer.enter(StepPart::data_wait);
      const auto batch = loader.next();
      ends_step = batch.ends_step;
      timer.enter(StepPart::forward);
      if (is_late) compute_for(plan.extra, net, batch.input());
      const auto loss = net->forward(batch.input());
      timer.enter(StepPart::backward);
      begin = lockstep::StepClock::now();
      loss.backward();
      if (ends_step) timer.move(StepPart::exposed, ddp.record().exposed);
    }
    timer.enter(StepPart::optimizer);
    optimizer.step();
    optimizer.zero_grad();
    timer.enter(StepPart::other);
    log.add(timer.end_step(), ddp.record(), begin);
    if (step % kInterval == 0) log.end_interval(step, 0);
  }
  log.end_period(plan.steps);
  if (world.rank() != 0) return;
  const auto analysis = log.analysis();
  std::printf("{\"ms_per_batch\":%.4f,\"analysis\":%s}\n", analysis.step_ms / plan.accumulate,
              lockstep::to_json(analysis).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "injected FOLDER CAUSE [fixed]\n");
    return 2;
  }
  run(argv[1], argv[2], argc == 4);
  return 0;
}
