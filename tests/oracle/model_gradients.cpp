// model_gradients FOLDER: for each of lockstep's models, with a small size and made-up weights and
// data, writes FOLDER/<model>.safetensors: logits, loss, gradients, and buffers after one forward
// and backward.
#include <torch/torch.h>

#include <string>

#include "models/benchmark_transformer.h"
#include "models/gpt.h"
#include "models/made_up_numbers.h"
#include "models/mlp.h"
#include "models/resnet.h"
#include "write_tensors.h"

namespace {

using namespace lockstep;

template <typename Model>
void write(const std::string& path, Model net, const at::Tensor& input, const at::Tensor& target) {
  models::fill(*net);
  const auto logits = net->forward(input);
  const auto loss = torch::cross_entropy_loss(logits.flatten(0, -2), target.flatten());
  loss.backward();
  NamedTensors found{{"logits", logits}, {"loss", loss}};
  for (const auto& named : net->named_parameters()) {
    found.emplace_back("grad." + named.key(), named.value().grad());
  }
  for (const auto& named : net->named_buffers()) {
    found.emplace_back("buffer." + named.key(), named.value());
  }
  write_tensors(path, found);
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments != 2) {
    std::fputs("usage: model_gradients FOLDER\n", stderr);
    return 2;
  }
  const std::string folder = std::string(arguments[1]) + "/";
  write(folder + "mlp.safetensors", models::Mlp(models::MlpOptions{.widths = {48, 32, 32, 10}}),
        models::made_up_numbers({16, 48}), models::made_up_classes(16, 10));

  const auto tokens = models::made_up_tokens(3, 13, 60);
  const auto input = tokens.narrow(1, 0, 12);
  const auto target = tokens.narrow(1, 1, 12);
  write(folder + "transformer.safetensors",
        models::BenchmarkTransformer(models::BenchmarkTransformerOptions{
            .vocabulary = 60, .positions = 16, .width = 32, .heads = 4, .hidden = 48, .layers = 2}),
        input, target);
  models::GptOptions gpt{.vocabulary = 60,
                         .context = 16,
                         .layers = 2,
                         .heads = 4,
                         .width = 32,
                         .kernels = models::GptKernels::libtorch};
  write(folder + "gpt_tied.safetensors", models::Gpt(gpt), input, target);
  gpt.head = models::GptHead::separate;
  write(folder + "gpt_separate.safetensors", models::Gpt(gpt), input, target);

  write(folder + "resnet_32.safetensors", models::ResNet18(models::ResNetOptions{.width = 4}),
        models::made_up_numbers({4, 3, 32, 32}), models::made_up_classes(4, 10));
  write(folder + "resnet_28.safetensors",
        models::ResNet18(models::ResNetOptions{.channels = 1, .classes = 7, .width = 4}),
        models::made_up_numbers({4, 1, 28, 28}), models::made_up_classes(4, 7));
  return 0;
}
