#include "lockstep/train/unit.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class RecomputeWrapper final : public UnitWrapper {
 public:
  [[nodiscard]] std::vector<at::Tensor> run(UnitCall call) override {
    const BlockState state{call.block->parameters(), call.block->buffers()};
    return recompute(call.forward, state, std::move(call.inputs));
  }
  [[nodiscard]] std::string name() const override { return "recompute"; }
};

}  // namespace

void Unit::wrap(std::shared_ptr<UnitWrapper> wrapper) {
  std::vector<std::shared_ptr<UnitWrapper>> all;
  if (wrappers_) all = *wrappers_;
  all.push_back(std::move(wrapper));
  wrappers_ = std::make_shared<const std::vector<std::shared_ptr<UnitWrapper>>>(std::move(all));
}

std::vector<std::string> Unit::wrapper_names() const {
  std::vector<std::string> names;
  if (!wrappers_) return names;
  for (auto each = wrappers_->rbegin(); each != wrappers_->rend(); ++each) {
    names.push_back((*each)->name());
  }
  return names;
}

std::vector<at::Tensor> Unit::run(UnitCall call) const {
  // Each wrapper except the outermost becomes the forward of the next one around it.
  const auto& wrappers = *wrappers_;
  for (std::size_t i = 0; i + 1 < wrappers.size(); ++i) {
    call.forward = [wrapper = wrappers[i], block = call.block,
                    inside = std::move(call.forward)](const std::vector<at::Tensor>& inputs) {
      return wrapper->run({block, inside, inputs});
    };
  }
  return wrappers.back()->run(std::move(call));
}

int recompute_blocks(torch::nn::Module& model, const RecomputeOptions& options) {
  if (options.every < 1) {
    throw UsageError(fmt::format("recompute every {} blocks: expected at least 1", options.every));
  }
  std::vector<Unit*> units;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* found = dynamic_cast<Unit*>(module.get())) units.push_back(found);
  }
  if (units.empty()) {
    throw UsageError(
        fmt::format("{} has no unit to recompute: derive the class of its blocks from "
                    "lockstep::Unit, and call them as unit(block)(x)",
                    model.name()));
  }
  const auto wrapper = std::make_shared<RecomputeWrapper>();
  int chosen = 0;
  for (std::size_t i = 0; i < units.size(); i += static_cast<std::size_t>(options.every)) {
    const auto names = units[i]->wrapper_names();
    if (std::find(names.begin(), names.end(), wrapper->name()) != names.end()) {
      throw UsageError(fmt::format("unit {} of {} is already recomputed: call unwrap() on it first",
                                   i, model.name()));
    }
    units[i]->wrap(wrapper);
    ++chosen;
  }
  return chosen;
}

}  // namespace lockstep
