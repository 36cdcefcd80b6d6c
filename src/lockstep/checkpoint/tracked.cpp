#include "lockstep/checkpoint/tracked.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <mutex>

namespace lockstep {
namespace {

class TrackedModule final : public Tracked {
 public:
  explicit TrackedModule(torch::nn::Module& module) noexcept : module_(module) {}

  std::string_view kind() const noexcept override { return "a module"; }
  NamedTensors named_tensors() override {
    NamedTensors tensors;
    for (const auto& list : {module_.named_parameters(), module_.named_buffers()}) {
      for (const auto& item : list) {
        if (item.value().defined()) tensors.emplace_back(item.key(), item.value());
      }
    }
    return tensors;
  }
  // Buffers, such as running statistics, may differ between ranks.
  std::size_t num_equal(const NamedTensors& /*named*/) override {
    const auto parameters = module_.named_parameters();
    return static_cast<std::size_t>(
        std::ranges::count_if(parameters, [](const auto& item) { return item.value().defined(); }));
  }
  std::optional<std::string> state_json() const override { return std::nullopt; }
  void load_state_json(std::string_view /*json*/) override {}

 private:
  torch::nn::Module& module_;
};

// get_state() returns a copy of the state as one tensor; set_state() takes such a tensor.
class TrackedGenerator final : public Tracked {
 public:
  explicit TrackedGenerator(at::Generator generator) : generator_(std::move(generator)) {}

  std::string_view kind() const noexcept override { return "a random generator"; }
  NamedTensors named_tensors() override {
    const std::lock_guard lock(generator_.mutex());
    return {{"state", generator_.get_state()}};
  }
  std::optional<std::string> state_json() const override { return std::nullopt; }
  void load_state_json(std::string_view /*json*/) override {}
  void load_tensors(const NamedTensors& loaded) override {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(loaded.front().second);
  }
  bool is_per_rank() const noexcept override { return true; }
  void derive(std::uint64_t seed) override {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_current_seed(seed);
  }

 private:
  at::Generator generator_;
};

}  // namespace

std::unique_ptr<Tracked> track_module(torch::nn::Module& module) {
  return std::make_unique<TrackedModule>(module);
}

std::unique_ptr<Tracked> track_generator(at::Generator generator) {
  return std::make_unique<TrackedGenerator>(std::move(generator));
}

}  // namespace lockstep
