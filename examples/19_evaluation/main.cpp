// Evaluation with true counts. Every rank reads its shard of the validation data, each sample
// exactly once, and reduce() combines sums and counts: the result is that of one process, also when
// shards differ in size or a rank has none. As a reference, every rank also evaluates all samples
// and compares.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>

#include "lockstep/lockstep.h"

struct Result {
  lockstep::Mean loss;
  lockstep::Accuracy accuracy;
};

// Evaluates the samples of `loader`, each once.
Result evaluate(torch::nn::Sequential& net, lockstep::Loader& loader) {
  const torch::NoGradGuard no_grad;
  net->eval();  // dropout and BatchNorm behave differently in training
  Result result;
  for (const auto& batch : loader.epoch()) {
    const auto logits = net->forward(batch.input());
    const auto loss = torch::cross_entropy_loss(logits, batch.target());
    result.loss.add(loss, static_cast<double>(batch.count()));  // an empty batch has weight 0
    result.accuracy.add(logits, batch.target());
  }
  net->train();
  return result;
}

int main() {
  const auto world = lockstep::init();
  lockstep::ProcessGroup group(world);
  torch::manual_seed(1);
  const lockstep::TensorDataset validation(
      {{"input", torch::randn({101, 8})}, {"target", torch::randint(0, 3, {101})}});
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::ReLU(), torch::nn::Dropout(0.5),
                            torch::nn::Linear(32, 3));

  const auto sizes = lockstep::derive_batch_sizes({.world = world.size(), .local = 10});
  lockstep::Loader shard(validation, lockstep::evaluation_options(sizes, world.rank()));
  auto result = evaluate(net, shard);
  lockstep::reduce(group, result.loss, result.accuracy);  // now equal on all ranks

  lockstep::Loader whole(validation, lockstep::evaluation_options({.local = 10}, 0));
  const auto reference = evaluate(net, whole);

  if (world.rank() == 0) {
    std::printf("%.0f samples: loss %.6f, accuracy %.4f; one process: loss %.6f, accuracy %.4f\n",
                result.loss.count, result.loss.value(), result.accuracy.value(),
                reference.loss.value(), reference.accuracy.value());
  }
  const bool same_counts = result.loss.count == 101 && result.accuracy == reference.accuracy;
  return same_counts && std::abs(result.loss.value() - reference.loss.value()) < 1e-5 ? 0 : 1;
}
