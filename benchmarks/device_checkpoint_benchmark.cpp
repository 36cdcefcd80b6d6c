// device_checkpoint_benchmark [FOLDER]: a GPT-2 of 124 million with AdamW on a GPU. Prints how long
// a save stops training, how much slower the steps are while it is written, and the cost of
// deterministic kernels. FOLDER (default: one in the current folder) gets checkpoints of 1.5 GB and
// is removed.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/bars.h"
#include "lockstep/lockstep.h"
#include "models/gpt.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUp = 8;
constexpr int kSaves = 3;
constexpr int kStepsWithout = 25;  // before each save
constexpr int kMostSteps = 400;    // while one is written
constexpr int kDeterministicSteps = 12;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

class Trained {
 public:
  explicit Trained(const std::string& folder) : run_(world_, folder, {.save_every = 0, .keep = 2}) {
    run_.track("model", *net_);
    run_.track("optimizer", optimizer_);
    (void)run_.resume();
  }

  // One step, and its time until the device has finished.
  double step() {
    const auto begin = Clock::now();
    {
      const lockstep::Autocast lower(at::kBFloat16, at::kCUDA);
      const auto logits = net_->forward(tokens_.slice(1, 0, kContext));
      torch::cross_entropy_loss(logits.flatten(0, 1), tokens_.slice(1, 1).flatten()).backward();
    }
    optimizer_.step();
    optimizer_.zero_grad();
    (void)run_.end_of_step();
    torch::cuda::synchronize();
    return ms_since(begin);
  }

  // The time for which a save stops training, with the copy within device memory.
  double save() {
    const auto begin = Clock::now();
    run_.save();
    torch::cuda::synchronize();
    return ms_since(begin);
  }
  [[nodiscard]] bool is_written(std::int64_t step) const {
    return std::filesystem::exists(run_.checkpoints_folder() + "/step-" + std::to_string(step));
  }
  [[nodiscard]] std::int64_t num_steps() const { return run_.step(); }
  void finish() { run_.finish(); }
  [[nodiscard]] double seconds_to_write() const {
    return std::chrono::duration<double>(run_.save_times().wrote).count();
  }

 private:
  static constexpr std::int64_t kContext = 1024;
  static constexpr std::int64_t kBatch = 16;

  static lockstep::models::Gpt make_net() {
    lockstep::models::Gpt net(lockstep::models::GptOptions{
        .vocabulary = 50304, .context = kContext, .layers = 12, .heads = 12, .width = 768});
    net->to(torch::kCUDA);
    return net;
  }

  lockstep::World world_ = lockstep::World::alone();
  lockstep::ProcessGroup group_{world_};
  lockstep::models::Gpt net_ = make_net();
  lockstep::Ddp ddp_{*net_, group_};
  lockstep::AdamW optimizer_{ddp_.flat(), {.lr = 6e-4}};
  at::Tensor tokens_ = torch::randint(50257, {kBatch, kContext + 1},
                                      torch::device(torch::kCUDA).dtype(torch::kLong));
  lockstep::Run run_;
};

void measure(const std::string& folder) {
  { const lockstep::Deterministic before_the_first_cuda_tensor; }  // sets cuBLAS for both kinds
  auto trained = std::make_unique<Trained>(folder);
  for (int i = 0; i < kWarmUp; ++i) (void)trained->step();
  (void)trained->save();  // allocates its memory
  trained->finish();

  std::vector<double> stalls, without, meanwhile, written;
  for (int save = 0; save < kSaves; ++save) {
    for (int i = 0; i < kStepsWithout; ++i) without.push_back(trained->step());
    const auto saved = trained->num_steps();
    stalls.push_back(trained->save());
    for (int i = 0; i < kMostSteps && !trained->is_written(saved); ++i) {
      meanwhile.push_back(trained->step());
    }
    trained->finish();
    written.push_back(trained->seconds_to_write());
  }
  std::vector<double> usual, deterministic;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kDeterministicSteps; ++i) usual.push_back(trained->step());
    const lockstep::Deterministic scope;
    (void)trained->step();  // other kernels are chosen
    for (int i = 0; i < kDeterministicSteps; ++i) deterministic.push_back(trained->step());
  }

  const double base = median(without), slower = 100 * (median(meanwhile) / base - 1);
  const double cost = 100 * (median(deterministic) / median(usual) - 1);
  fmt::print("GPT-2 124 M, bf16, batch 16, context 1024: {:.1f} ms per step ({} steps)\n", base,
             without.size());
  fmt::print("  save: stops training for {:.2f} ms (largest {:.2f}), is written after {:.2f} s\n",
             median(stalls), *std::ranges::max_element(stalls), median(written));
  fmt::print("  steps meanwhile: {:.1f} ms ({} steps)\n", median(meanwhile), meanwhile.size());
  fmt::print("  deterministic kernels: {:.1f} ms per step, usual ones {:.1f}\n",
             median(deterministic), median(usual));
  const double stall = *std::ranges::max_element(stalls);
  lockstep::print_bar("checkpoint 124 M + AdamW: stall", fmt::format("{:.2f} ms", stall), "<= 5 ms",
                      stall <= 5);
  lockstep::print_bar("checkpoint 124 M + AdamW: steps meanwhile",
                      fmt::format("{:+.1f} % slower", slower), "<= 2 %", slower <= 2);
  lockstep::print_bar("deterministic mode, 124 M", fmt::format("{:+.1f} % per step", cost));
}

}  // namespace

int main(int argc, char** argv) {
  if (!torch::cuda::is_available()) {
    fmt::print("SKIPPED: no GPU on this machine\n");
    return 77;
  }
  const std::string folder = argc > 1 ? argv[1] : "device_checkpoint_benchmark.run";
  std::filesystem::remove_all(folder);
  measure(folder);
  std::filesystem::remove_all(folder);
  return 0;
}
