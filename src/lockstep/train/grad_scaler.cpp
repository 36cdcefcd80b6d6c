#include "lockstep/train/grad_scaler.h"

#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <fmt/format.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/train/present_gradients_internal.h"
#include "lockstep/train/unscale_internal.h"

namespace lockstep {
namespace {

void check(const GradScalerOptions& options) {
  const auto expect = [](bool holds, std::string_view what, double value, std::string_view range) {
    if (!holds) {
      throw UsageError(fmt::format("GradScaler with {} {}: expected {}", what, value, range));
    }
  };
  const auto scale = static_cast<float>(options.initial_scale);
  expect(std::isfinite(scale) && scale > 0, "initial_scale", options.initial_scale,
         "a positive number within float32");
  expect(options.growth_factor > 1, "growth_factor", options.growth_factor, "a value above 1");
  expect(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor",
         options.backoff_factor, "a value between 0 and 1");
  expect(options.growth_interval > 0, "growth_interval",
         static_cast<double>(options.growth_interval), "at least 1");
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(static_cast<float>(options.initial_scale)) {
  check(options);
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  if (!options_.enabled) return loss;
  // A tensor and not a number, so that a zero-dimensional float16 loss becomes float32, as in
  // PyTorch.
  return at::mul(loss, at::full({}, scale_, at::dtype(at::kFloat).device(loss.device())));
}

bool GradScaler::unscale(at::TensorList parameters, UnscaleOptions options) {
  if (!options_.enabled) {
    note(true, options);
    return !options.found_elsewhere;
  }
  const auto factor = inverse_scale();
  bool finite = true;
  for (const auto& parameter : parameters) {
    auto& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    expect_first_time(parameter.unsafeGetTensorImpl());
    finite &= unscale_tensor(gradient, factor);
  }
  note(finite, options);
  return finite && !options.found_elsewhere;
}

bool GradScaler::unscale(FlatParameters& flat, UnscaleOptions options) {
  const auto ranges = present_gradients(flat);
  expect_first_time(&flat);
  bool finite = true;
  if (options_.enabled) {
    for (const auto& range : ranges) {
      auto gradients = gradients_of(flat, range);
      finite &= unscale_tensor(gradients, inverse_scale());
    }
  }
  note(finite, options);
  return finite && !options.found_elsewhere;
}

bool GradScaler::should_step() const {
  expect_unscaled("step");
  return found_ == Found::finite;
}

void GradScaler::update() {
  expect_unscaled("update");
  const bool skipped = found_ == Found::not_finite;
  found_ = Found::nothing_yet;
  already_unscaled_.clear();
  if (skipped) ++num_skipped_;
  if (!options_.enabled) return;
  if (skipped) {
    scale_ = static_cast<float>(scale_ * options_.backoff_factor);
    growing_ = 0;
    return;
  }
  if (++growing_ < options_.growth_interval) return;
  const auto grown = static_cast<float>(scale_ * options_.growth_factor);
  if (std::isfinite(grown)) scale_ = grown;
  growing_ = 0;
}

std::string GradScaler::state_json() const {
  return nlohmann::json{{"kind", "grad_scaler"},
                        {"scale", static_cast<double>(scale_)},
                        {"growth_factor", options_.growth_factor},
                        {"backoff_factor", options_.backoff_factor},
                        {"growth_interval", options_.growth_interval},
                        {"growing", growing_},
                        {"skipped", num_skipped_},
                        {"enabled", options_.enabled}}
      .dump();
}

void GradScaler::load_state_json(std::string_view json) {
  try {
    const auto saved = nlohmann::json::parse(json);
    GradScalerOptions options{.initial_scale = saved.at("scale").get<double>(),
                              .growth_factor = saved.at("growth_factor").get<double>(),
                              .backoff_factor = saved.at("backoff_factor").get<double>(),
                              .growth_interval = saved.at("growth_interval").get<std::int64_t>(),
                              .enabled = saved.at("enabled").get<bool>()};
    check(options);
    const auto growing = saved.at("growing").get<std::int64_t>();
    const auto skipped = saved.at("skipped").get<std::int64_t>();
    scale_ = static_cast<float>(options.initial_scale);
    options.initial_scale = options_.initial_scale;
    options_ = options;
    growing_ = growing;
    num_skipped_ = skipped;
    found_ = Found::nothing_yet;
    already_unscaled_.clear();
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("not the state of a GradScaler: {}", error.what()));
  }
}

void GradScaler::note(bool finite, UnscaleOptions options) noexcept {
  const bool all_finite = finite && !options.found_elsewhere && found_ != Found::not_finite;
  found_ = all_finite ? Found::finite : Found::not_finite;
}

void GradScaler::expect_unscaled(std::string_view verb) const {
  if (found_ != Found::nothing_yet) return;
  throw UsageError(fmt::format(
      "GradScaler::{}() before unscale() in this step: call unscale() between backward() "
      "and step(), and update() once after it",
      verb));
}

void GradScaler::expect_first_time(const void* what) {
  if (already_unscaled_.insert(what).second) return;
  throw UsageError(
      "GradScaler::unscale() of gradients that were already unscaled in this step: they would be "
      "divided by the scale twice. Call unscale() once per parameter, and update() at the end of "
      "the step");
}

float GradScaler::inverse_scale() const noexcept {
  return static_cast<float>(1.0 / static_cast<double>(scale_));
}

}  // namespace lockstep
