// Language models: a GPT, and the encoder that lockstep's speed is quoted for.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>

#include "cli/train/program/task.h"
#include "lockstep/base/error.h"
#include "lockstep/data/file_datasets.h"
#include "lockstep/data/token_windows.h"
#include "lockstep/tokenizers/tokenizer.h"
#include "models/benchmark_transformer.h"
#include "models/gpt.h"
#include "models/gpt_generation.h"

namespace lockstep::cli {
namespace {

// The first tokens for training, the last for evaluation: neighbours in a text are alike, so that
// windows held out from between would flatter.
struct TokenData {
  std::unique_ptr<TokenWindows> training;
  std::unique_ptr<TokenWindows> held_out;
};

Tokens part_of(const Tokens& all, std::int64_t begin, std::int64_t end, std::string_view what) {
  auto part = all;
  std::visit(
      [&](const auto& values) {
        part.values =
            values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      },
      all.values);
  part.name = fmt::format("{} of {}", what, all.name);
  return part;
}

TokenData open_tokens(const SavedConfig& saved, const std::string& folder) {
  const auto& config = saved.resolved.config;
  const auto path = paths_in(folder, saved.files.training).front();
  const auto all = tokens_in_file(TokenFile(FileBytes::map(path)));
  const auto count = all.count();
  const auto kept = static_cast<std::int64_t>(static_cast<double>(count) * config.held_out);
  const TokenWindowsOptions windows{.window = config.context};
  if (count - kept <= config.context || (kept > 0 && kept <= config.context)) {
    throw UsageError(fmt::format(
        "{} has {} tokens, of which {} are held out: too few for windows of {}. Give more text, a "
        "smaller --context or another --held-out",
        path, count, kept, config.context));
  }
  TokenData data;
  data.training =
      std::make_unique<TokenWindows>(part_of(all, 0, count - kept, "training part"), windows);
  if (kept > 0) {
    data.held_out =
        std::make_unique<TokenWindows>(part_of(all, count - kept, count, "held-out part"), windows);
  }
  return data;
}

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& target) {
  return torch::cross_entropy_loss(scores.flatten(0, 1), target.flatten());
}

class TokenTask : public Task {
 public:
  TokenTask(const SavedConfig& saved, const std::string& folder)
      : config_(saved.resolved.config), data_(open_tokens(saved, folder)) {}

  const Dataset& training() const override { return *data_.training; }
  const Dataset* held_out() const override { return data_.held_out.get(); }

  at::Tensor loss(const Batch& batch) override {
    return cross_entropy(forward(batch.input()), batch.target());
  }
  void score(const Batch& batch, Scores& scores) override {
    scores.loss.add(loss(batch), static_cast<double>(batch.count() * config_.context));
  }

  std::string unit() const override { return "tok"; }
  std::int64_t units_per_sample() const override { return config_.context; }

 protected:
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& tokens) = 0;

  /// Forward and backward of `weights` in matrix products, and attention's own products, for a
  /// token: 6 a weight, and 12 a layer, place and channel (Chowdhery et al. 2022, appendix B).
  [[nodiscard]] double operations(std::int64_t weights) const {
    return 6.0 * static_cast<double>(weights) +
           12.0 * static_cast<double>(config_.layers * config_.width * config_.context);
  }
  [[nodiscard]] const TrainConfig& config() const { return config_; }

 private:
  TrainConfig config_;
  TokenData data_;
};

class GptTask final : public TokenTask {
 public:
  GptTask(const SavedConfig& saved, const std::string& folder)
      : TokenTask(saved, folder),
        net_(gpt_of(saved)),
        tokenizer_(open_tokenizer(saved.files.tokenizer)) {}

  torch::nn::Module& net() override { return *net_; }

  double operations_per_unit() const override {
    const auto& o = net_->options();
    // Embeddings of positions are looked up; those of tokens too, but the head multiplies with
    // them.
    return operations(12 * o.layers * o.width * o.width + o.vocabulary * o.width);
  }
  std::string describe() const override {
    const auto& o = net_->options();
    return fmt::format("GPT of {} layers, width {}, {} heads, context {}, {} tokens to choose from",
                       o.layers, o.width, o.heads, o.context, o.vocabulary);
  }

  // From a line break, as a text begins.
  std::string sample(std::int64_t tokens) override {
    const torch::NoGradGuard no_grad;
    std::vector<Token> encoded;
    tokenizer_->encode("\n", encoded);
    const std::vector<std::int64_t> prompt(encoded.begin(), encoded.end());
    net_->eval();
    models::GptGeneration generation(net_, prompt, {.temperature = 0.8, .top_k = 40});
    std::vector<Token> written;
    for (std::int64_t i = 0; i < tokens; ++i) {
      written.push_back(static_cast<Token>(generation.next()));
    }
    net_->train();
    return tokenizer_->decode(written);
  }

 private:
  at::Tensor forward(const at::Tensor& tokens) override { return net_->forward(tokens); }

  models::Gpt net_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

class TransformerTask final : public TokenTask {
 public:
  TransformerTask(const SavedConfig& saved, const std::string& folder)
      : TokenTask(saved, folder),
        options_{.positions = std::max<std::int64_t>(config().context, 512),
                 .width = config().width,
                 .heads = config().heads,
                 .hidden = 4 * config().width,
                 .layers = config().layers,
                 .dropout = config().dropout},
        net_(options_) {
    if (saved.files.vocabulary > options_.vocabulary) {
      throw UsageError(fmt::format("the transformer has {} tokens, the tokenizer {}",
                                   options_.vocabulary, saved.files.vocabulary));
    }
  }

  torch::nn::Module& net() override { return *net_; }
  double operations_per_unit() const override {
    return operations(12 * options_.layers * options_.width * options_.width +
                      options_.vocabulary * options_.width);
  }
  std::string describe() const override {
    return fmt::format(
        "encoder of {} layers, width {}, {} heads; every place sees all others, so "
        "its loss measures nothing but that it learns",
        options_.layers, options_.width, options_.heads);
  }

 private:
  at::Tensor forward(const at::Tensor& tokens) override { return net_->forward(tokens); }

  models::BenchmarkTransformerOptions options_;
  models::BenchmarkTransformer net_;
};

}  // namespace

std::unique_ptr<Task> make_token_task(const SavedConfig& saved, const std::string& folder) {
  if (saved.resolved.config.model == ModelKind::gpt) {
    return std::make_unique<GptTask>(saved, folder);
  }
  return std::make_unique<TransformerTask>(saved, folder);
}

}  // namespace lockstep::cli
