#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/ddp/connect_device_internal.h"
#include "lockstep/ddp/synced_batch_norms_internal.h"
#include "lockstep/flat/device_stream.h"

namespace lockstep {
namespace {

namespace autograd = torch::autograd;

constexpr std::size_t kMaxName = 47;  // of a call: a longer one would be cut by the group

// The number makes a cut name unique.
std::string call_name(std::string_view what, std::size_t index, const std::string& layer) {
  return fmt::format("{} {} {}", what, index, layer).substr(0, kMaxName);
}

// As LibTorch does in a training forward, but over all ranks. Version counters do not change, so
// that a graph that has saved a buffer can still run backward.
void update_running(const BatchNormLayer& layer, const SyncedStatistics& of, double momentum) {
  if (!layer.running_mean->defined()) return;
  const at::NoGradGuard off;
  const auto n = static_cast<double>(of.count);
  const auto update = [&](const at::Tensor& running, const at::Tensor& value) {
    const auto old = running.to(value.scalar_type());
    running.variable_data().copy_(old * (1 - momentum) + value * momentum);
  };
  update(*layer.running_mean, of.statistics.mean);
  update(*layer.running_var, of.statistics.variance * (n / (n - 1)));
}

void add_to_batches(const BatchNormLayer& layer, std::int64_t number) {
  if (layer.num_batches_tracked->defined()) layer.num_batches_tracked->variable_data().add_(number);
}

// The factor of a layer's next update, after it has counted the batch.
double momentum_of(const BatchNormLayer& layer) {
  if (layer.options->momentum()) return *layer.options->momentum();
  return layer.num_batches_tracked->defined() ? 1.0 / layer.num_batches_tracked->item<double>() : 0;
}

void expect_several(const BatchNormLayer& layer, const SyncedStatistics& statistics) {
  if (statistics.count != 1) return;
  throw UsageError(
      fmt::format("layer {} got one value per channel on all ranks together; its variance needs "
                  "two: use a larger batch, or drop the last one (Tail::drop)",
                  layer.name));
}

// The running statistics are updated with a number of samples that the hosts exchange.
void expect_not_captured(const at::Tensor& values) {
  if (!values.is_cuda() || !is_capturing(current_stream(values.device()))) return;
  throw UsageError(
      "a CUDA graph of a step with DdpOptions::sync_batch_norm is unsupported: leave out the "
      "option, or run the steps without CudaGraphStep");
}

// One run of a layer, held by its node of the graph.
struct SyncedRun : torch::CustomClassHolder {
  std::shared_ptr<SyncedBatchNorms> layers;
  const BatchNormLayer* layer = nullptr;
  double momentum = 0;
  double eps = 0;
  std::int64_t count = 0;  // values per channel on all ranks
};

}  // namespace

struct SyncedBatchNormNode : autograd::Function<SyncedBatchNormNode> {
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& its_weight,
                            const std::optional<at::Tensor>& its_bias,
                            const c10::intrusive_ptr<SyncedRun>& run) {
    const auto weight = its_weight.value_or(at::Tensor());
    const auto bias = its_bias.value_or(at::Tensor());
    const auto own = shifted(input);
    const auto all = run->layers->statistics(*run->layer, own, run->momentum);
    run->count = all->count;
    const auto by =
        normalization_of(all->statistics, own.shift, run->eps, own.values.scalar_type());
    context->save_for_backward(
        {own.values, weight, bias, by.offset, by.variance, by.inverse_deviation});
    context->saved_data["run"] = c10::IValue::make_capsule(run);
    context->saved_data["dtype"] = input.scalar_type();
    return normalized(own.values, by, weight, bias).to(input.scalar_type());
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto run =
        c10::static_intrusive_pointer_cast<SyncedRun>(context->saved_data["run"].toCapsule());
    if (at::GradMode::is_enabled()) {
      throw UsageError(fmt::format(
          "layer {} is a SyncBatchNorm, whose backward() cannot be differentiated: call backward() "
          "without create_graph, or use GroupNorm",
          run->layer->name));
    }
    const auto saved = context->get_saved_variables();
    const auto& values = saved[0];
    const auto& weight = saved[1];
    const auto& bias = saved[2];
    const Normalization by{saved[3], saved[4], saved[5], run->eps};
    const auto gradient =
        gradients[0].to(values.scalar_type()).contiguous(values.suggest_memory_format());
    auto sums = gradient_sums(gradient, values, by);
    autograd::variable_list result(4);
    // Those of this rank: Ddp reduces them over the ranks. Copied, also in float64, because the
    // sums are reduced in place.
    const auto copy_in = [](const at::Tensor& sum, const at::Tensor& dtype_of) {
      return sum.to(dtype_of.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    };
    if (weight.defined()) result[1] = copy_in(sums[1], weight);
    if (bias.defined()) result[2] = copy_in(sums[0], bias);
    if (!context->needs_input_grad(0)) return result;
    run->layers->reduce_sums(*run->layer, sums);
    result[0] = input_gradient(gradient, values, by, weight, sums, run->count)
                    .to(context->saved_data["dtype"].toScalarType());
    return result;
  }
};

bool BatchNormLayer::owns(const at::Tensor& its_running_mean,
                          const at::Tensor& its_weight) const noexcept {
  const auto& own = running_mean->defined() ? *running_mean : *weight;
  const auto& its = running_mean->defined() ? its_running_mean : its_weight;
  return its.defined() && its.is_same(own);
}

bool BatchNormLayer::is_training() const { return module->is_training(); }

SyncedBatchNorms::SyncedBatchNorms(torch::nn::Module& module, const ProcessGroup& group)
    : module_(module), group_(group.split(0)) {
  collect(module, "", nullptr);
  if (!unrecognizable_.empty()) {
    throw UsageError(fmt::format(
        "DdpOptions::sync_batch_norm: the layers {} have neither weight nor running statistics, by "
        "which their calls are recognized: set affine(true) or track_running_stats(true), or use "
        "GroupNorm in their place",
        fmt::join(unrecognizable_, ", ")));
  }
  if (layers_.empty()) {
    throw UsageError(
        "DdpOptions::sync_batch_norm is set, but the model has no torch::nn::BatchNorm1d, "
        "BatchNorm2d or BatchNorm3d: register the layers in their modules, or leave the option "
        "out");
  }
  connect_device(group_, module.parameters().front().device());
}

template <typename Impl>
bool SyncedBatchNorms::add(torch::nn::Module& module, const std::string& name,
                           const std::shared_ptr<torch::nn::Module>& keep) {
  auto* const impl = dynamic_cast<Impl*>(&module);
  if (impl == nullptr) return false;
  const bool is_known = std::any_of(layers_.begin(), layers_.end(), [&](const auto& layer) {
    return layer.module == &module;  // a layer may be registered twice
  });
  if (is_known) return true;
  if (!impl->weight.defined() && !impl->running_mean.defined()) {
    unrecognizable_.push_back(name);
    return true;
  }
  const auto index = layers_.size();
  layers_.push_back({.name = name,
                     .keep = keep,
                     .module = &module,
                     .options = &impl->options,
                     .weight = &impl->weight,
                     .running_mean = &impl->running_mean,
                     .running_var = &impl->running_var,
                     .num_batches_tracked = &impl->num_batches_tracked,
                     .forward_name = call_name("batch_norm", index, name),
                     .backward_name = call_name("gradient of batch_norm", index, name)});
  return true;
}

void SyncedBatchNorms::collect(torch::nn::Module& module, const std::string& name,
                               const std::shared_ptr<torch::nn::Module>& keep) {
  if (add<torch::nn::BatchNorm1dImpl>(module, name, keep) ||
      add<torch::nn::BatchNorm2dImpl>(module, name, keep) ||
      add<torch::nn::BatchNorm3dImpl>(module, name, keep)) {
    return;
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), name.empty() ? child.key() : name + "." + child.key(), child.value());
  }
}

const BatchNormLayer* SyncedBatchNorms::find(const at::Tensor& running_mean,
                                             const at::Tensor& weight) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(), [&](const auto& layer) {
    return layer.owns(running_mean, weight);
  });
  return found == layers_.end() ? nullptr : &*found;
}

void SyncedBatchNorms::expect_foreign(const at::Tensor& running_mean,
                                      const at::Tensor& weight) const {
  const auto* const module = module_.get();
  if (module == nullptr) return;
  const auto refuse_own = [&](const auto& named) {
    for (const auto& item : named) {
      if (!item.value().is_same(running_mean) && !item.value().is_same(weight)) continue;
      throw UsageError(fmt::format(
          "DdpOptions::sync_batch_norm: batch_norm was called with {}, which belongs to no "
          "BatchNorm layer that the model had when its Ddp was made, so its statistics would be "
          "those of this rank only: use torch::nn::BatchNorm1d to BatchNorm3d, registered before "
          "the Ddp is made",
          item.key()));
    }
  };
  refuse_own(module->named_buffers());
  refuse_own(module->named_parameters());
}

at::Tensor SyncedBatchNorms::run(const BatchNormLayer& layer, const BatchNormCall& call) {
  auto run = c10::make_intrusive<SyncedRun>();
  run->layers = shared_from_this();
  run->layer = &layer;
  run->momentum = call.momentum;
  run->eps = call.eps;
  const auto or_none = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return SyncedBatchNormNode::apply(call.input, or_none(call.weight), or_none(call.bias), run);
}

std::shared_ptr<const SyncedStatistics> SyncedBatchNorms::statistics(const BatchNormLayer& layer,
                                                                     const ShiftedInput& input,
                                                                     double momentum) {
  expect_not_captured(input.values);
  if (repeats_forward()) {
    auto kept = std::dynamic_pointer_cast<const SyncedStatistics>(repeated_value());
    if (!kept || kept->layer != &layer) {
      throw UsageError(fmt::format(
          "the second forward of a recomputed block runs layer {} where the first one did not: a "
          "recomputed block must do the same in both",
          layer.name));
    }
    // The layer has counted this batch, but there was none.
    if (kept->count == 0) add_to_batches(layer, -1);
    note_value(kept);
    return kept;
  }
  auto all = gather(layer, moments_of(input), {.sum = input.count});
  if (all->count == 0) {
    add_to_batches(layer, -1);
  } else {
    expect_several(layer, *all);
    update_running(layer, *all, momentum);
  }
  note_value(all);
  return all;
}

std::shared_ptr<const SyncedStatistics> SyncedBatchNorms::gather(const BatchNormLayer& layer,
                                                                 const at::Tensor& moments,
                                                                 const CallFlags& flags) {
  auto rows = at::empty({group_.size(), moments.numel()}, moments.options());
  auto work = group_.all_gather(rows, moments, {.name = layer.forward_name, .flags = flags});
  work.wait();
  auto found = std::make_shared<SyncedStatistics>();
  found->layers = shared_from_this();
  found->layer = &layer;
  found->statistics = merged(rows);
  found->count = work.flags().sum;
  return found;
}

void SyncedBatchNorms::reduce_sums(const BatchNormLayer& layer, at::Tensor& sums) const {
  group_.all_reduce(sums, ReduceOp::sum, {.name = layer.backward_name}).wait();
}

bool SyncedBatchNorms::answer(std::string_view name) {
  const auto found = std::find_if(layers_.begin(), layers_.end(), [&](const auto& layer) {
    return layer.forward_name == name || layer.backward_name == name;
  });
  if (found == layers_.end()) return false;
  const auto& layer = *found;
  const auto& its = layer.running_mean->defined() ? *layer.running_mean : *layer.weight;
  if (layer.backward_name == name) {
    auto sums = at::zeros({2, its.numel()}, its.options().dtype(at::kDouble).requires_grad(false));
    reduce_sums(layer, sums);
    return true;
  }
  const auto all = gather(layer, no_moments(its.numel(), its.device()), {.absent = true});
  if (all->count == 0) return true;
  expect_several(layer, *all);
  add_to_batches(layer, 1);
  update_running(layer, *all, momentum_of(layer));
  return true;
}

std::vector<at::Tensor> SyncedBatchNorms::buffers() const {
  std::vector<at::Tensor> all;
  for (const auto& layer : layers_) {
    for (const auto* buffer : {layer.running_mean, layer.running_var, layer.num_batches_tracked}) {
      if (buffer->defined()) all.push_back(*buffer);
    }
  }
  return all;
}

}  // namespace lockstep
