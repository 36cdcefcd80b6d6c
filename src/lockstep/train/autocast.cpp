#include "lockstep/train/autocast.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

AutocastState state_for(at::ScalarType dtype, at::DeviceType device) {
  if (dtype == at::kFloat) {
    return {.enabled = false, .dtype = at::autocast::get_autocast_dtype(device), .device = device};
  }
  if (dtype != at::kBFloat16 && dtype != at::kHalf) {
    throw UsageError(fmt::format(
        "autocast to {} is unsupported: expected bfloat16 or float16, or float32 to turn "
        "it off",
        c10::toString(dtype)));
  }
  return {.enabled = true, .dtype = dtype, .device = device};
}

void apply(const AutocastState& state) {
  at::autocast::set_autocast_enabled(state.device, state.enabled);
  at::autocast::set_autocast_dtype(state.device, state.dtype);
}

}  // namespace

AutocastState autocast_state(at::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
          device};
}

Autocast::Autocast(at::ScalarType dtype, at::DeviceType device)
    : Autocast(state_for(dtype, device)) {}

Autocast::Autocast(const AutocastState& state) : before_(autocast_state(state.device)) {
  if (state.dtype != before_.dtype) at::autocast::clear_cache();
  apply(state);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  const bool is_outermost = at::autocast::decrement_nesting() == 0;
  const bool changes_dtype = autocast_state(before_.device).dtype != before_.dtype;
  if (is_outermost || changes_dtype) at::autocast::clear_cache();
  apply(before_);
}

void Autocast::forget_casts() { at::autocast::clear_cache(); }

UncachedAutocast::UncachedAutocast() : before_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

UncachedAutocast::~UncachedAutocast() { at::autocast::set_autocast_cache_enabled(before_); }

}  // namespace lockstep
