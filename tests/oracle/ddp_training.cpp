// ddp_training FOLDER CASE…: one rank of lockstep that trains each case (training_case.h) for 20
// steps and writes FOLDER/<case>.<rank>.safetensors: the averaged gradients of the first and the
// last step, the weights and buffers at the end, the loss of every step. A case that ends in
// +shards trains with Shard::optimizer, its optimizer over the shards, and writes no gradients.
#include <torch/torch.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/lockstep.h"
#include "training_case.h"
#include "write_tensors.h"

namespace {

using namespace lockstep;

constexpr int kSteps = 20;

constexpr std::string_view kShards = "+shards";

void train(const ProcessGroup& group, const std::string& name, const std::string& path) {
  const bool sharded = name.ends_with(kShards);
  auto training = make_training_case(sharded ? name.substr(0, name.size() - kShards.size()) : name);
  Ddp ddp(*training.model, group,
          {.bucket_bytes = 16u << 10, .shard = sharded ? Shard::optimizer : Shard::none});
  if (sharded) {
    std::vector<at::Tensor> own;
    for (const auto& shard : ddp.flat().owned()) own.push_back(shard.value);
    training.optimize(training, own);
  }
  NamedTensors found;
  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    const auto loss = training.loss(step * group.size() + group.rank());
    loss.backward();
    losses.push_back(loss.item<float>());
    if (!sharded && (step == 0 || step == kSteps - 1)) {
      for (const auto& named : training.model->named_parameters()) {
        found.emplace_back((step == 0 ? "first." : "last.") + named.key(),
                           named.value().grad().clone());
      }
    }
    training.step();
    if (sharded) ddp.flat().share_values();
  }
  for (const auto& named : training.model->named_parameters()) {
    found.emplace_back("weight." + named.key(), named.value());
  }
  for (const auto& named : training.model->named_buffers()) {
    found.emplace_back("buffer." + named.key(), named.value());
  }
  found.emplace_back("losses", torch::tensor(losses));
  write_tensors(path, found);
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const auto world = init();
  if (num_arguments < 3) {
    std::fputs("usage: ddp_training FOLDER CASE...\n", stderr);
    return 2;
  }
  ProcessGroup group(world);
  for (int i = 2; i < num_arguments; ++i) {
    const std::string name = arguments[i];
    train(group, name,
          std::string(arguments[1]) + "/" + name + "." + std::to_string(group.rank()) +
              ".safetensors");
  }
  group.barrier().wait();
  return 0;
}
