// resumed_training RUN LAST LOG: one rank of a run with checkpoints in the folder RUN. Resumes from
// the newest checkpoint, trains to step LAST, saves every 41st step and the last, and appends one
// line per step to LOG.<rank>: the step, this rank's loss, and the indices of its samples. The
// other side is resume_agreement.py.
#include <torch/torch.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "lockstep/lockstep.h"
#include "models/benchmark_transformer.h"
#include "models/made_up_numbers.h"

namespace {

using namespace lockstep;

constexpr std::int64_t kSamples = 384;
constexpr std::int64_t kGlobalBatch = 32;
constexpr std::int64_t kVocabulary = 60;
constexpr std::int64_t kLength = 12;
constexpr std::int64_t kSaveEvery = 41;
constexpr double kLr = 1e-2;

models::BenchmarkTransformer make_model() {
  models::BenchmarkTransformer net(models::BenchmarkTransformerOptions{.vocabulary = kVocabulary,
                                                                       .positions = 16,
                                                                       .width = 32,
                                                                       .heads = 4,
                                                                       .hidden = 48,
                                                                       .layers = 2});
  models::fill(*net);
  return net;
}

void train(const World& world, const std::string& folder, std::int64_t last, std::ostream& log) {
  const TensorDataset data({{"tokens", models::made_up_tokens(kSamples, kLength + 1, kVocabulary)},
                            {"number", torch::arange(kSamples)}});
  Loader loader(data, {.batch = derive_batch_sizes({.world = world.size(), .global = kGlobalBatch}),
                       .rank = world.rank(),
                       .order = {.kind = OrderKind::torch, .seed = 5}});
  auto net = make_model();
  const ProcessGroup group(world);
  Ddp ddp(*net, group);
  AdamW optimizer(ddp.flat(), {.lr = kLr});
  Run run(world, folder, {.save_every = kSaveEvery, .seed = 5, .data_id = data.id()});
  run.track("model", net);
  run.track("loader", loader);
  run.track("optimizer", optimizer);
  (void)run.resume();
  while (run.step() < last) {
    const auto batch = loader.next();
    const auto logits = net->forward(batch["tokens"].narrow(1, 0, kLength));
    const auto loss = torch::cross_entropy_loss(logits.flatten(0, 1),
                                                batch["tokens"].narrow(1, 1, kLength).flatten());
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", loss.item<double>());
    log << run.step() << ' ' << digits;
    const auto numbers = batch["number"];
    for (std::int64_t i = 0; i < numbers.numel(); ++i)
      log << ' ' << numbers[i].item<std::int64_t>();
    log << '\n';
    if (run.end_of_step()) return;
  }
  run.finish();
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  if (num_arguments != 4) {
    std::fputs("usage: resumed_training RUN LAST LOG\n", stderr);
    return 2;
  }
  std::ofstream log(std::string(arguments[3]) + "." + std::to_string(world.rank()), std::ios::app);
  train(world, arguments[1], std::stoll(arguments[2]), log);
  return log.flush() ? 0 : 1;
}
