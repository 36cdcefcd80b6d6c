#include "lockstep/train/sgd.h"

#include <cmath>
#include <string>

#include "lockstep/kernels/sgd_pass.h"
#include "lockstep/train/segment_step_internal.h"

namespace lockstep {
namespace {

std::vector<std::string> state_names(const SGDOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum_buffer"};
}

}  // namespace

SGD::SGD(FlatParameters& flat, const SGDOptions& options)
    : FlatOptimizer(flat, {.kind = "SGD",
                           .lr = options.lr,
                           .weight_decay = options.weight_decay,
                           .groups = options.groups,
                           .state_names = state_names(options)}),
      options_(options) {
  expect_option(std::isfinite(options.momentum) && options.momentum >= 0, "SGD", "momentum",
                options.momentum, "0 or more");
  expect_option(std::isfinite(options.dampening), "SGD", "dampening", options.dampening,
                "a finite number");
  if (!options.nesterov) return;
  expect_option(options.momentum > 0, "SGD with nesterov", "momentum", options.momentum,
                "a value above 0");
  expect_option(options.dampening == 0, "SGD with nesterov", "dampening", options.dampening, "0");
}

void SGD::update(const SegmentMemory& memory, std::span<const RangeStep> ranges) {
  step_segment<SgdStretch>(
      memory, ranges,
      [this](auto& stretch, const auto& state_at) {
        if (options_.momentum != 0) stretch.momenta = state_at(0);
      },
      SgdRule{.momentum = options_.momentum,
              .dampening = options_.dampening,
              .nesterov = options_.nesterov},
      sgd_step, [](const auto& part, const SgdStep& step) { sgd_pass(part, step); },
      [](const auto& stretch, DeviceChunks chunks, const SgdStep* steps, const std::uint32_t* skip,
         DeviceStream stream) { launch_sgd(stretch, chunks, steps, skip, stream); });
}

}  // namespace lockstep
