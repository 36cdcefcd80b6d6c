// What the code of pages and header comments takes for granted: variables of a training program,
// declared and never defined, because nothing here is run. A block that declares one of these names
// itself means its own.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"
#include "models/gpt_generation.h"

namespace prelude {

namespace F = torch::nn::functional;

struct BlockImpl : torch::nn::Module, lockstep::Unit {
  at::Tensor forward(const at::Tensor& input);
};
TORCH_MODULE(Block);
struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& input);
};
TORCH_MODULE(Net);
using lockstep::models::GptGeneration;

// The job and its data.
extern lockstep::World world;
extern lockstep::ProcessGroup group;
extern int rank;
extern std::uint64_t seed;
extern std::string name, path;
extern std::vector<double> losses;
extern nlohmann::json config;
extern std::size_t bytes;
extern at::Tensor images, labels;
extern lockstep::TensorDataset data, validation;
extern lockstep::BatchSizes sizes;
extern lockstep::Loader loader;

// The model and its training.
extern Net net;
extern Block block;
extern std::vector<Block> blocks;
extern lockstep::models::Gpt gpt;
extern std::vector<std::int64_t> prompt;
extern lockstep::Ddp ddp;
extern lockstep::FlatParameters& flat;
extern lockstep::AdamW optimizer;
extern lockstep::GradScaler scaler;
extern lockstep::Run run;
extern lockstep::Trace& trace;
extern std::int64_t step, steps;
extern at::Tensor input, target, loss, logits, gradient, x;

// Two models that train against each other.
extern Net generator, discriminator;
extern torch::optim::Adam generator_optimizer, discriminator_optimizer;

// What the reader of a block would write.
at::Tensor loss_of(const at::Tensor& output);
at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target);
at::Tensor loss_of(const at::Tensor& output, bool is_real);
at::Tensor loss_of(const lockstep::Batch& batch);
at::Tensor noise();
void train(const at::Tensor& input, const at::Tensor& target);
void train_on(const lockstep::Batch& batch);
void evaluate_and_print();
template <typename... Values>
void print(const Values&... values);

}  // namespace prelude
