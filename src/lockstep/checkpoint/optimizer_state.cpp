// LibTorch's optimizers as tracked objects. Tensors have the names <i>.exp_avg and so on, where i
// counts the parameters of all groups; numbers are JSON:
//   {"kind": "adamw", "groups": [{"size": 2, "lr": 0.001, …}], "parameters": {"0": {"step": 5,
//   "tensors": ["exp_avg"]}}}
// A parameter has no state before its first step, so loading first creates the states listed in
// "parameters".
#include <fmt/format.h>
#include <torch/torch.h>

#include <functional>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/tracked.h"

namespace lockstep {
namespace {

using nlohmann::json;
using torch::optim::OptimizerParamGroup;
using torch::optim::OptimizerParamState;

// The adapter's view of each kind of optimizer: options by name, and the state's tensors and step.
struct Sgd {
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr std::string_view kName = "sgd";

  template <typename Visit>
  static void visit_options(Options& options, const Visit& visit) {
    visit("lr", options.lr());
    visit("momentum", options.momentum());
    visit("dampening", options.dampening());
    visit("weight_decay", options.weight_decay());
    visit("nesterov", options.nesterov());
  }
  template <typename Visit>
  static void visit_tensors(State& state, const Visit& visit) {
    visit("momentum_buffer", state.momentum_buffer());
  }
  static std::int64_t step(const State& /*state*/) { return 0; }
  static void set_step(State& /*state*/, std::int64_t /*step*/) {}
};

template <typename OptionsOf, typename StateOf>
struct AdamLike {
  using Options = OptionsOf;
  using State = StateOf;

  template <typename Visit>
  static void visit_options(Options& options, const Visit& visit) {
    visit("lr", options.lr());
    visit("beta1", std::get<0>(options.betas()));
    visit("beta2", std::get<1>(options.betas()));
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("amsgrad", options.amsgrad());
  }
  template <typename Visit>
  static void visit_tensors(State& state, const Visit& visit) {
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  static std::int64_t step(const State& state) { return state.step(); }
  static void set_step(State& state, std::int64_t step) { state.step(step); }
};
struct Adam : AdamLike<torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr std::string_view kName = "adam";
};
struct AdamW : AdamLike<torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr std::string_view kName = "adamw";
};

template <typename Kind>
class TrackedOptimizer final : public Tracked {
 public:
  explicit TrackedOptimizer(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  std::string_view kind() const noexcept override { return "an optimizer"; }
  NamedTensors named_tensors() override {
    NamedTensors tensors;
    for_each_state([&](std::size_t index, typename Kind::State& state) {
      Kind::visit_tensors(state, [&](const char* name, at::Tensor& tensor) {
        if (tensor.defined()) tensors.emplace_back(fmt::format("{}.{}", index, name), tensor);
      });
    });
    return tensors;
  }

  std::optional<std::string> state_json() const override {
    json groups = json::array();
    for (auto& group : optimizer_.param_groups()) {
      json options{{"size", group.params().size()}};
      Kind::visit_options(options_of(group),
                          [&](const char* name, auto& value) { options[name] = value; });
      groups.push_back(std::move(options));
    }
    json steps = json::object();
    for_each_state([&](std::size_t index, typename Kind::State& state) {
      json tensors = json::array();
      Kind::visit_tensors(state, [&](const char* name, at::Tensor& tensor) {
        if (tensor.defined()) tensors.push_back(name);
      });
      steps[fmt::format("{}", index)] = {{"step", Kind::step(state)}, {"tensors", tensors}};
    });
    return json{{"kind", Kind::kName}, {"groups", groups}, {"parameters", steps}}.dump();
  }

  void load_state_json(std::string_view text) override {
    try {
      load(json::parse(text));
    } catch (const json::exception& error) {
      throw UsageError(
          fmt::format("invalid state of the optimizer {}: {}", Kind::kName, error.what()));
    }
  }

 private:
  static typename Kind::Options& options_of(OptimizerParamGroup& group) {
    return static_cast<typename Kind::Options&>(group.options());
  }

  void for_each_parameter(const std::function<void(std::size_t, at::Tensor&)>& visit) const {
    std::size_t index = 0;
    for (auto& group : optimizer_.param_groups()) {
      for (auto& parameter : group.params()) visit(index++, parameter);
    }
  }

  void for_each_state(const std::function<void(std::size_t, typename Kind::State&)>& visit) const {
    for_each_parameter([&](std::size_t index, at::Tensor& parameter) {
      const auto found = optimizer_.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer_.state().end()) return;
      visit(index, static_cast<typename Kind::State&>(*found->second));
    });
  }

  void load(const json& saved) {
    if (const auto kind = saved.at("kind").get<std::string>(); kind != Kind::kName) {
      throw UsageError(
          fmt::format("the checkpoint has the state of the optimizer {}, this run uses {}; use the "
                      "same optimizer",
                      kind, Kind::kName));
    }
    load_options(saved.at("groups"));
    optimizer_.state().clear();
    for_each_parameter([&](std::size_t index, at::Tensor& parameter) {
      const auto found = saved.at("parameters").find(fmt::format("{}", index));
      if (found != saved.at("parameters").end()) make_state(parameter, *found);
    });
  }

  void load_options(const json& groups) {
    auto& ours = optimizer_.param_groups();
    std::vector<std::size_t> sizes;
    for (const auto& group : groups) sizes.push_back(group.at("size").get<std::size_t>());
    bool fits = sizes.size() == ours.size();
    for (std::size_t i = 0; fits && i < sizes.size(); ++i)
      fits = sizes[i] == ours[i].params().size();
    if (!fits) {
      std::vector<std::size_t> found;
      for (const auto& group : ours) found.push_back(group.params().size());
      throw UsageError(
          fmt::format("the checkpoint's optimizer has groups of {} parameters, this run's has {}; "
                      "use the same groups",
                      json(sizes).dump(), json(found).dump()));
    }
    for (std::size_t i = 0; i < ours.size(); ++i) {
      Kind::visit_options(options_of(ours[i]), [&]<typename T>(const char* name, T& value) {
        value = groups[i].at(name).template get<T>();
      });
    }
  }

  void make_state(const at::Tensor& parameter, const json& saved) {
    auto state = std::make_unique<typename Kind::State>();
    Kind::set_step(*state, saved.at("step").get<std::int64_t>());
    const auto names = saved.at("tensors").get<std::vector<std::string>>();
    Kind::visit_tensors(*state, [&](const char* name, at::Tensor& tensor) {
      const bool is_there = std::find(names.begin(), names.end(), name) != names.end();
      if (is_there) tensor = torch::zeros_like(parameter, at::MemoryFormat::Preserve);
    });
    optimizer_.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
  }

  torch::optim::Optimizer& optimizer_;
};

}  // namespace

std::unique_ptr<Tracked> track_optimizer(torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr) {
    return std::make_unique<TrackedOptimizer<Sgd>>(optimizer);
  }
  if (dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr) {
    return std::make_unique<TrackedOptimizer<AdamW>>(optimizer);
  }
  if (dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr) {
    return std::make_unique<TrackedOptimizer<Adam>>(optimizer);
  }
  throw UsageError(
      "unsupported optimizer: Run::track() supports SGD, Adam and AdamW of LibTorch; for another "
      "optimizer, track an object with named_tensors(), state_json() and load_state_json()");
}

}  // namespace lockstep
