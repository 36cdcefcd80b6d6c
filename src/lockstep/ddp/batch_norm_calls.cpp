#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/ddp/batch_norm_calls_internal.h"

namespace lockstep {
namespace {

constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// A Ddp may be destroyed on another thread, so the list does not own the layers.
std::vector<std::weak_ptr<SyncedBatchNorms>>& layers_of_this_thread() {
  thread_local std::vector<std::weak_ptr<SyncedBatchNorms>> all;
  return all;
}

struct Recipient {
  std::shared_ptr<SyncedBatchNorms> layers;
  const BatchNormLayer* layer = nullptr;
};

// In a second forward (recompute) the layers of the first one, also on a thread of autograd.
std::optional<Recipient> recipient_of(const at::Tensor& running_mean, const at::Tensor& weight) {
  if (repeats_forward()) {
    const auto kept = std::dynamic_pointer_cast<const SyncedStatistics>(repeated_value());
    if (kept && kept->layer->owns(running_mean, weight))
      return Recipient{kept->layers, kept->layer};
  }
  const bool is_autograds_thread = layers_of_this_thread().empty();
  const auto all = redirected_batch_norms();
  for (const auto& layers : all) {
    const auto* const layer = layers->find(running_mean, weight);
    if (layer == nullptr) continue;
    if (!layer->is_training()) return std::nullopt;  // without running statistics: still local
    return Recipient{layers, layer};
  }
  for (const auto& layers : all) layers->expect_foreign(running_mean, weight);
  if (is_autograds_thread && !repeats_forward()) {
    throw UsageError(
        "batch_norm runs on a thread that autograd has started for a backward() under "
        "DdpOptions::sync_batch_norm, where its layers are unknown: use lockstep::recompute() for "
        "activation checkpointing");
  }
  return std::nullopt;
}

at::Tensor batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum,
                      double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard below(kKey);
  const auto own = [](const std::optional<at::Tensor>& tensor) {
    return tensor.value_or(at::Tensor());
  };
  const auto to =
      training ? recipient_of(own(running_mean), own(weight)) : std::optional<Recipient>();
  if (!to) {
    return at::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                          cudnn_enabled);
  }
  return to->layers->run(*to->layer, {.input = input,
                                      .weight = own(weight),
                                      .bias = own(bias),
                                      .running_mean = own(running_mean),
                                      .running_var = own(running_var),
                                      .momentum = momentum,
                                      .eps = eps});
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("batch_norm", TORCH_FN(batch_norm));
}

}  // namespace

void redirect_batch_norms(const std::shared_ptr<SyncedBatchNorms>& layers) {
  layers_of_this_thread().push_back(layers);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

void clean_redirections() {
  auto& all = layers_of_this_thread();
  if (all.empty()) return;  // autograd's threads have the key but no layers
  std::erase_if(all, [](const auto& each) {
    const auto layers = each.lock();
    return !layers || layers->has_stopped();
  });
  if (all.empty()) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

std::vector<std::shared_ptr<SyncedBatchNorms>> redirected_batch_norms() {
  clean_redirections();
  std::vector<std::shared_ptr<SyncedBatchNorms>> found;
  for (const auto& each : layers_of_this_thread()) {
    if (auto layers = each.lock()) found.push_back(std::move(layers));
  }
  return found;
}

}  // namespace lockstep
