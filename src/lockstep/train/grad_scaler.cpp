#include "lockstep/train/grad_scaler.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/upload.h"
#include "lockstep/kernels/device_passes.h"
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

// The numbers of a DeviceScaler, which begins with two of four bytes.
constexpr std::int64_t kScale = offsetof(DeviceScaler, scale) / sizeof(float);
constexpr std::int64_t kFound = offsetof(DeviceScaler, found) / sizeof(std::uint32_t);

DeviceScaler scaler_of(float scale, std::int64_t growing, std::int64_t skipped) {
  return {.scale = scale, .growing = growing, .skipped = skipped};
}

at::Tensor bytes_of(const DeviceScaler& state) {
  auto bytes = at::empty({sizeof(state)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &state, sizeof(state));
  return bytes;
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
  if (!loss.is_cuda()) return at::mul(loss, at::full({}, current_scale(), at::kFloat));
  move_to(loss.device());
  return at::mul(loss, device_.view(at::kFloat).select(0, kScale));
}

Pending<bool> GradScaler::unscale(at::TensorList parameters, UnscaleOptions options) {
  bool finite = true;
  if (options_.enabled) {
    for (const auto& parameter : parameters) {
      auto& gradient = parameter.mutable_grad();
      if (!gradient.defined()) continue;
      expect_first_time(parameter.unsafeGetTensorImpl());
      unscale_gradient(gradient, finite);
    }
  }
  return note(finite, options);
}

Pending<bool> GradScaler::unscale(FlatParameters& flat, UnscaleOptions options) {
  const auto ranges = owned_gradients(flat);
  expect_first_time(&flat);
  bool finite = true;
  if (options_.enabled) {
    for (const auto& range : ranges) {
      auto gradients = flat.averages(range);
      unscale_gradient(gradients, finite);
    }
    finite = agree(flat, finite);
  }
  return note(finite, options);
}

// With shards each rank has seen its own; a sum may be non-finite although no rank's gradient was.
bool GradScaler::agree(const FlatParameters& flat, bool finite) {
  if (!flat.shards().is_sharded()) return finite;
  auto found = at::full({1}, finite ? 0 : 1, at::kByte);
  flat.combine_largest(found);
  // The same call on every rank, also on one that has had no loss.
  if (const auto device = flat.values(0).device(); device.is_cuda()) {
    move_to(device);
    auto on_device = device_.view(at::kInt).narrow(0, kFound, 1);
    flat.combine_largest(on_device);
  }
  return found.item<std::uint8_t>() == 0;
}

void GradScaler::unscale_gradient(at::Tensor& gradient, bool& finite) {
  if (gradient.is_cuda()) {
    move_to(gradient.device());
    unscale_tensor_on_device(gradient, device_);
  } else {
    finite &= unscale_tensor(gradient, inverse_scale());
  }
}

bool GradScaler::should_step() const {
  expect_unscaled("step");
  if (const auto flag = skip_flag(); flag.defined()) return flag.item<int>() == 0;
  return found_ == Found::finite;
}

at::Tensor GradScaler::skip_flag() const {
  expect_unscaled("step");
  return found_ == Found::on_device ? device_.view(at::kInt).select(0, kFound) : at::Tensor();
}

Pending<bool> GradScaler::is_zero(const at::Tensor& flag) { return Pending<bool>(flag.eq(0)); }

void GradScaler::update() {
  expect_unscaled("update");
  const auto found = std::exchange(found_, Found::nothing_yet);
  already_unscaled_.clear();
  if (found == Found::on_device) {
    const c10::DeviceGuard guard(device_.device());
    launch_scaler_update(static_cast<DeviceScaler*>(device_.mutable_data_ptr()),
                         options_.growth_factor, options_.backoff_factor, options_.growth_interval,
                         current_stream(device_.device()));
    return;
  }
  const bool skipped = found == Found::not_finite;
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

double GradScaler::current_scale() const {
  read_device();
  return options_.enabled ? scale_ : 1;
}

std::int64_t GradScaler::num_skipped() const {
  read_device();
  return num_skipped_;
}

std::string GradScaler::state_json() const {
  read_device();
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
    // Into the same memory: a captured graph refers to it.
    if (device_.defined()) device_.copy_(bytes_of(scaler_of(scale_, growing_, num_skipped_)));
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("not the state of a GradScaler: {}", error.what()));
  }
}

// Once the state is on a device, everything that was found is noted there.
Pending<bool> GradScaler::note(bool finite, UnscaleOptions options) {
  const bool all_finite = finite && !options.found_elsewhere;
  if (!device_.defined()) {
    const bool was_finite = found_ != Found::not_finite;
    found_ = all_finite && was_finite ? Found::finite : Found::not_finite;
    return all_finite;
  }
  const auto flag = device_.view(at::kInt).select(0, kFound);
  if (!all_finite || found_ == Found::not_finite) flag.fill_(1);
  found_ = Found::on_device;
  return is_zero(flag);
}

void GradScaler::move_to(at::Device device) const {
  if (device_.defined()) return;
  const auto state = scaler_of(scale_, growing_, num_skipped_);
  device_ = upload(std::as_bytes(std::span(&state, 1)), device, "the scale of a GradScaler");
}

void GradScaler::read_device() const {
  if (!device_.defined()) return;
  DeviceScaler state;
  const auto bytes = device_.cpu();
  std::memcpy(&state, bytes.const_data_ptr(), sizeof(state));
  scale_ = state.scale;
  growing_ = state.growing;
  num_skipped_ = state.skipped;
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

float GradScaler::inverse_scale() const {
  read_device();
  return static_cast<float>(1.0 / static_cast<double>(scale_));
}

}  // namespace lockstep
