// Classification and regression on images and tables: ResNet-18 and the MLP.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include "cli/train/program/task.h"
#include "lockstep/base/error.h"
#include "lockstep/data/file_datasets.h"
#include "lockstep/data/subset.h"
#include "models/mlp.h"
#include "models/resnet.h"

namespace lockstep::cli {
namespace {

// Training and validation data. Without files for validation, it is a random part of all samples.
struct SampleData {
  std::unique_ptr<Dataset> all;
  std::unique_ptr<Dataset> training = {};  // null: `all`
  std::unique_ptr<Dataset> validation = {};

  [[nodiscard]] const Dataset& to_train() const { return training ? *training : *all; }
};

SampleData open_samples(const SavedConfig& saved, const std::string& folder) {
  const auto& config = saved.resolved.config;
  // The mean and standard deviation of Fashion-MNIST, which also suit other images.
  const OpenOptions options{.normalization = Normalization{.mean = {0.2860}, .stddev = {0.3530}}};
  SampleData data{.all = open_dataset(paths_in(folder, saved.files.training), options)};
  if (!saved.files.validation.empty()) {
    data.validation = open_dataset(paths_in(folder, saved.files.validation), options);
  } else if (config.val_fraction > 0) {
    auto parts = split_samples(data.all->size(), config.val_fraction,
                               static_cast<std::uint64_t>(config.seed));
    data.training = std::make_unique<Subset>(*data.all, std::move(parts.remainder));
    data.validation = std::make_unique<Subset>(*data.all, std::move(parts.chosen));
  }
  return data;
}

const Field& field_of(const Dataset& data, std::string_view name) {
  return data.layout().fields()[static_cast<std::size_t>(data.layout().index_of(name))];
}

// Mirrors each image with probability 1/2.
Transform mirror() {
  return in_place([](const Rows& rows, const SampleStreams& random) {
    const int field = rows.layout().index_of("input");
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      if (random(row).below(2) == 0) continue;
      auto image = rows.row_tensor(field, row);
      image.copy_(image.flip({-1}));
    }
  });
}

// Refuses a class that the model does not have. In host memory: a GPU would have to be waited for.
Transform check_classes(std::int64_t classes) {
  return in_place([classes](const Rows& rows, const SampleStreams& /*random*/) {
    for (const auto target : rows.values<std::int64_t>(rows.layout().index_of("target"))) {
      if (target < classes) continue;
      throw UsageError(fmt::format(
          "a target is class {}, but --classes is {}: start again with --classes {} or more (and "
          "--fresh if this run has checkpoints). Numeric targets need a decimal point",
          target, classes, target + 1));
    }
  });
}

class SampleTask : public Task {
 public:
  SampleTask(const SavedConfig& saved, const std::string& folder)
      : config_(saved.resolved.config),
        data_(open_samples(saved, folder)),
        input_(field_of(*data_.all, "input")),
        has_classes_(field_of(*data_.all, "target").dtype == at::kLong) {}

  const Dataset& training() const override { return data_.to_train(); }
  const Dataset* validation() const override { return data_.validation.get(); }
  std::vector<Transform> checks() const override {
    if (!has_classes_) return {};
    return {check_classes(config_.classes)};
  }

  at::Tensor loss(const Batch& batch) override {
    return loss_of(forward(batch.input()), batch.target());
  }
  void evaluate(const Batch& batch, EvalResult& result) override {
    const auto out = forward(batch.input());
    result.loss.add(loss_of(out, batch.target()), static_cast<double>(batch.count()));
    if (has_classes_) result.accuracy.add(out, batch.target());
  }

  std::string unit() const override { return input_.shape.size() == 3 ? "img" : "row"; }
  std::int64_t units_per_sample() const override { return 1; }

 protected:
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input) = 0;
  [[nodiscard]] const TrainConfig& config() const { return config_; }
  [[nodiscard]] const Field& input() const { return input_; }
  [[nodiscard]] std::int64_t outputs() const { return has_classes_ ? config_.classes : 1; }

 private:
  [[nodiscard]] at::Tensor loss_of(const at::Tensor& out, const at::Tensor& target) const {
    if (!has_classes_) return torch::mse_loss(out.squeeze(1), target);
    return torch::cross_entropy_loss(out, target);
  }

  TrainConfig config_;
  SampleData data_;
  Field input_;
  bool has_classes_;  // false: targets are numbers
};

class ResNetTask final : public SampleTask {
 public:
  ResNetTask(const SavedConfig& saved, const std::string& folder)
      : SampleTask(saved, folder), net_(nullptr) {
    if (input().shape.size() != 3) {
      throw UsageError(fmt::format("resnet needs images, but {} has {}: use mlp", training().name(),
                                   lockstep::describe(training().layout())));
    }
    net_ = models::ResNet18(models::ResNetOptions{
        .channels = input().shape[0], .classes = config().classes, .width = config().width});
  }

  torch::nn::Module& net() override { return *net_; }
  std::vector<Transform> transforms() const override {
    if (config().augment == Augment::none) return {};
    return {mirror()};
  }
  double operations_per_unit() const override { return 0; }
  std::string describe() const override {
    return fmt::format("ResNet-18, {} channels in the first stage, images of {} x {} x {}",
                       config().width, input().shape[0], input().shape[1], input().shape[2]);
  }

 private:
  at::Tensor forward(const at::Tensor& images) override { return net_->forward(images); }

  models::ResNet18 net_;
};

class MlpTask final : public SampleTask {
 public:
  MlpTask(const SavedConfig& saved, const std::string& folder)
      : SampleTask(saved, folder), widths_(widths()), net_(models::MlpOptions{widths_}) {}

  torch::nn::Module& net() override { return *net_; }
  double operations_per_unit() const override {
    std::int64_t weights = 0;
    for (std::size_t i = 1; i < widths_.size(); ++i) weights += widths_[i - 1] * widths_[i];
    return 6.0 * static_cast<double>(weights);
  }
  std::string describe() const override {
    return fmt::format("MLP, layers of {}", fmt::join(widths_, ", "));
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> widths() const {
    std::vector<std::int64_t> result{row_values(input())};
    result.insert(result.end(), config().hidden.begin(), config().hidden.end());
    result.push_back(outputs());
    return result;
  }
  at::Tensor forward(const at::Tensor& input) override { return net_->forward(input); }

  std::vector<std::int64_t> widths_;
  models::Mlp net_;
};

}  // namespace

std::unique_ptr<Task> make_sample_task(const SavedConfig& saved, const std::string& folder) {
  if (saved.resolved.config.model == ModelKind::resnet) {
    return std::make_unique<ResNetTask>(saved, folder);
  }
  return std::make_unique<MlpTask>(saved, folder);
}

}  // namespace lockstep::cli
