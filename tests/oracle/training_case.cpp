#include "training_case.h"

#include <torch/torch.h>

#include <vector>

#include "fused_adamw.h"
#include "lockstep/base/error.h"
#include "models/benchmark_transformer.h"
#include "models/gpt.h"
#include "models/made_up_numbers.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace lockstep {
namespace {

using models::made_up_classes;
using models::made_up_numbers;
using models::made_up_tokens;

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kVocabulary = 60;
constexpr std::int64_t kLength = 12;

// Convolutions without batch norm, because its statistics depend on how samples are divided among
// ranks.
torch::nn::Sequential conv() {
  using torch::nn::Conv2dOptions;
  return torch::nn::Sequential(
      torch::nn::Conv2d(Conv2dOptions(3, 16, 3).padding(1)), torch::nn::ReLU(),
      torch::nn::Conv2d(Conv2dOptions(16, 32, 3).stride(2).padding(1)), torch::nn::ReLU(),
      torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(32, 10));
}

// Small integers: every sum is exact, so the order of summation makes no difference.
at::Tensor whole_numbers(const std::vector<std::int64_t>& shape, std::int64_t factor,
                         std::int64_t begin, std::int64_t range) {
  const auto count = torch::arange(c10::multiply_integers(shape));
  return ((count * factor + begin).remainder(range) - range / 2).to(torch::kFloat).view(shape);
}

TrainingCase on_whole_numbers() {
  models::Mlp net(models::MlpOptions{{12, 16, 16, 4}});
  return {net.ptr(),
          [net](std::int64_t number) mutable {
            const auto logits = net->forward(whole_numbers({kBatch, 12}, 5, number, 7));
            return (logits * whole_numbers({kBatch, 4}, 1, number, 3)).sum() / kBatch;
          },
          {},
          {}};
}

void fill_with_whole_numbers(torch::nn::Module& model) {
  const torch::NoGradGuard off;
  std::int64_t number = 0;
  for (auto& parameter : model.parameters()) {
    parameter.copy_(whole_numbers(parameter.sizes().vec(), 7, number++, 5));
  }
}

template <typename Model>
TrainingCase on_images(Model net, std::int64_t side) {
  return {net.ptr(),
          [net, side](std::int64_t number) mutable {
            const auto images = made_up_numbers({kBatch, 3, side, side}, number);
            const auto classes = made_up_classes(kBatch, 10, number);
            return torch::cross_entropy_loss(net->forward(images), classes);
          },
          {},
          {}};
}

template <typename Model>
TrainingCase on_tokens(Model net) {
  return {net.ptr(),
          [net](std::int64_t number) mutable {
            const auto tokens = made_up_tokens(kBatch, kLength + 1, kVocabulary, number);
            const auto logits = net->forward(tokens.narrow(1, 0, kLength));
            return torch::cross_entropy_loss(logits.flatten(0, 1),
                                             tokens.narrow(1, 1, kLength).flatten());
          },
          {},
          {}};
}

TrainingCase untrained(const std::string& model) {
  if (model == "mlp") {
    return on_images(models::Mlp(models::MlpOptions{{3 * 8 * 8, 128, 128, 10}}), 8);
  }
  if (model == "integers") return on_whole_numbers();
  if (model == "conv") return on_images(conv(), 16);
  if (model == "resnet") {
    return on_images(models::ResNet18(models::ResNetOptions{.width = 4}), 16);
  }
  if (model == "transformer") {
    return on_tokens(
        models::BenchmarkTransformer(models::BenchmarkTransformerOptions{.vocabulary = kVocabulary,
                                                                         .positions = 16,
                                                                         .width = 32,
                                                                         .heads = 4,
                                                                         .hidden = 48,
                                                                         .layers = 2}));
  }
  if (model == "gpt") {
    return on_tokens(models::Gpt(models::GptOptions{.vocabulary = kVocabulary,
                                                    .context = 16,
                                                    .layers = 2,
                                                    .heads = 4,
                                                    .width = 32,
                                                    .kernels = models::GptKernels::libtorch}));
  }
  throw UsageError("unknown model '" + model + "'");
}

}  // namespace

TrainingCase make_training_case(const std::string& name) {
  const auto dash = name.find('-');
  auto made = untrained(name.substr(0, dash));
  if (name.starts_with("integers")) {
    fill_with_whole_numbers(*made.model);
  } else {
    models::fill(*made.model);
  }
  const auto optimizer = dash == std::string::npos ? "" : name.substr(dash + 1);
  if (optimizer == "adamw") {
    made.optimize = [](TrainingCase& of, const std::vector<at::Tensor>& parameters) {
      of.step = [adamw = std::make_shared<FusedAdamW>(parameters, FusedAdamWOptions{.lr = 1e-3})] {
        adamw->step();
        adamw->zero_grad();
      };
    };
  } else if (optimizer == "sgd") {
    made.optimize = [](TrainingCase& of, const std::vector<at::Tensor>& parameters) {
      of.step = [sgd = std::make_shared<torch::optim::SGD>(
                     parameters, torch::optim::SGDOptions(0.02).momentum(0.9))] {
        sgd->step();
        sgd->zero_grad();
      };
    };
  } else {
    throw UsageError("'" + name + "' names no optimizer; end it with -sgd or -adamw");
  }
  made.optimize(made, made.model->parameters());
  return made;
}

}  // namespace lockstep
