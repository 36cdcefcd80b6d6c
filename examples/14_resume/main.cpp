// Your own loop with checkpoints. Start it as two ranks, stop it with Ctrl-C or kill a rank, then
// start it again: it resumes, and its result is bit-identical to that of an uninterrupted run.
//   lockstep run -n 2 --max-restarts 3 build/release/examples/14_resume runs/mine
#include <torch/torch.h>

#include <cstdio>
#include <filesystem>

#include "lockstep/lockstep.h"

int main(int argc, char** argv) {
  const auto world = lockstep::init();
  const std::string folder =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "lockstep-14_resume";
  if (argc == 1 && world.rank() == 0)
    std::filesystem::remove_all(folder);  // so that every test starts fresh

  torch::manual_seed(1);  // the same initial weights on every rank
  torch::nn::Sequential net(torch::nn::Linear(16, 64), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                            torch::nn::Linear(64, 1));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const auto inputs = torch::randn({1000, 16});
  const lockstep::TensorDataset data({{"input", inputs}, {"target", inputs.sum(1, true)}});
  lockstep::Loader loader(
      data, {.batch = lockstep::derive_batch_sizes({.world = world.size(), .global = 32}),
             .rank = world.rank(),
             .order = {.seed = 7}});
  torch::manual_seed(100 + world.rank());  // a different dropout stream per rank

  const lockstep::ProcessGroup group(world);
  lockstep::Ddp ddp(*net, group);
  lockstep::Run run(world, folder, {.save_every = 50, .seed = 7, .data_id = data.id()});
  run.track("model", net);
  run.track("optimizer", optimizer);
  run.track("loader", loader);
  run.resume();  // the newest valid checkpoint, or a fresh start if there is none
  while (run.step() < 200) {
    const auto batch = loader.next();
    const auto loss = torch::mse_loss(net->forward(batch["input"]), batch["target"]);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    if (run.step() % 50 == 0 && world.rank() == 0) {
      std::printf("step %d: loss %.4f\n", static_cast<int>(run.step()), loss.item<float>());
    }
    if (run.end_of_step()) return 0;  // a stop was requested: saved, all ranks return together
  }
  run.finish();
  if (world.rank() == 0) std::printf("done; `lockstep ckpt inspect %s`\n", folder.c_str());
}
