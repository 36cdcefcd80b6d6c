// Language models: a GPT, and the encoder of lockstep's benchmarks.
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

// The first tokens are for training, the last for validation. Validation windows between training
// windows would make the validation loss too low: neighboring parts of a text are alike.
struct TokenData {
  std::unique_ptr<TokenWindows> training;
  std::unique_ptr<TokenWindows> validation;
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
  const auto kept = static_cast<std::int64_t>(static_cast<double>(count) * config.val_fraction);
  const TokenWindowsOptions windows{.window = config.context};
  if (count - kept <= config.context || (kept > 0 && kept <= config.context)) {
    throw UsageError(fmt::format(
        "{} has {} tokens, {} of them for validation: too few for --context {}. Give more text, a "
        "smaller --context or another --val-fraction",
        path, count, kept, config.context));
  }
  TokenData data;
  data.training =
      std::make_unique<TokenWindows>(part_of(all, 0, count - kept, "training part"), windows);
  if (kept > 0) {
    data.validation = std::make_unique<TokenWindows>(
        part_of(all, count - kept, count, "validation part"), windows);
  }
  return data;
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), target.flatten());
}

class TokenTask : public Task {
 public:
  TokenTask(const SavedConfig& saved, const std::string& folder)
      : config_(saved.resolved.config), data_(open_tokens(saved, folder)) {}

  const Dataset& training() const override { return *data_.training; }
  const Dataset* validation() const override { return data_.validation.get(); }

  at::Tensor loss(const Batch& batch) override {
    return cross_entropy(forward(batch.input()), batch.target());
  }
  void evaluate(const Batch& batch, EvalResult& result) override {
    result.loss.add(loss(batch), static_cast<double>(batch.count() * config_.context));
  }

  std::string unit() const override { return "tok"; }
  std::int64_t units_per_sample() const override { return config_.context; }

 protected:
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& tokens) = 0;

  /// Operations of forward and backward per token: 6 per weight that a matrix product uses, and 12
  /// per layer, position and channel for attention (Chowdhery et al. 2022, appendix B).
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
    // Position embeddings are only looked up. Token embeddings count: the head multiplies by them.
    return operations(12 * o.layers * o.width * o.width + o.vocabulary * o.width);
  }
  std::string describe() const override {
    const auto& o = net_->options();
    return fmt::format("GPT, {} layers, width {}, {} heads, context {}, vocabulary {}", o.layers,
                       o.width, o.heads, o.context, o.vocabulary);
  }

  // The prompt is a line break.
  std::string sample(std::int64_t tokens) override {
    const torch::NoGradGuard no_grad;
    std::vector<Token> encoded;
    tokenizer_->encode("\n", encoded);
    const std::vector<std::int64_t> prompt(encoded.begin(), encoded.end());
    net_->eval();
    models::GptGeneration generation(
        net_, prompt,
        {.temperature = 0.8, .top_k = 40, .vocabulary = tokenizer_->vocabulary_size()});
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
      throw UsageError(fmt::format(
          "the transformer has vocabulary {}, but the tokenizer has {}: use --tokenizer bytes",
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
        "encoder, {} layers, width {}, {} heads, for benchmarks (each position sees its own "
        "target, so the loss is not comparable)",
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
