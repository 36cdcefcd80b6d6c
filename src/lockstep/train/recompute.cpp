#include "lockstep/train/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/collectives/forward_record.h"
#include "lockstep/train/surroundings_internal.h"

namespace lockstep {
namespace {

namespace autograd = torch::autograd;
using autograd::variable_list;

// Restores generators and buffers at the end of the scope, also after an exception.
struct StateRestorer {
  GeneratorStates generators;
  BufferValues buffers;

  ~StateRestorer() {
    buffers.restore();
    generators.restore();
  }
};

// One forward of a block, held by its node of the graph.
struct RecomputedBlock : torch::CustomClassHolder {
  BlockForward forward;
  std::size_t num_inputs = 0;  // the first tensors of the node; parameters follow
  GeneratorStates generators;
  AutocastStates autocast;
  BufferValues changed_buffers;  // with the values they had before the first run
  ForwardRecord reduced;         // what the ranks reduced in the first run, as SyncBatchNorm does
  std::vector<bool> differentiable;
  variable_list frozen;  // parameters that needed no gradient in the first run

  // Runs the forward again, with a graph, and restores generators and buffers.
  [[nodiscard]] variable_list run_again(const variable_list& inputs, at::Device device) const {
    const StateRestorer restorer{GeneratorStates::now(device), changed_buffers.present()};
    const Autocast on_cpu(autocast.cpu);
    std::optional<Autocast> on_device;
    if (autocast.other) on_device.emplace(*autocast.other);
    const UncachedAutocast uncached;
    generators.restore();
    changed_buffers.restore();
    const ForwardRecord::Repeating once(reduced);
    const at::AutoGradMode on(true);
    return forward(inputs);
  }
};

at::Device device_of(const variable_list& tensors) {
  const auto elsewhere = std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && !tensor.is_cpu();
  });
  return elsewhere == tensors.end() ? at::Device(at::kCPU) : elsewhere->device();
}

void expect_same_versions(const variable_list& inputs, const std::vector<std::uint32_t>& versions) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || inputs[i]._version() == versions[i]) continue;
    throw UsageError(fmt::format(
        "a recomputed block changed its input {} in place; the second forward would run on the "
        "changed values. Use an out-of-place operation",
        i));
  }
}

// Every leaf of the graph of `outputs` must be in `known`; otherwise its gradient would be lost.
void expect_known_ends(const variable_list& outputs, const variable_list& known) {
  std::unordered_set<const autograd::Node*> seen;
  for (const auto& tensor : known) {
    if (!tensor.requires_grad()) continue;
    const auto& edge = autograd::impl::gradient_edge(tensor);
    seen.insert(edge.function.get());
  }
  std::vector<const autograd::Node*> open;
  for (const auto& output : outputs) {
    if (output.grad_fn()) open.push_back(output.grad_fn().get());
  }
  while (!open.empty()) {
    const auto* node = open.back();
    open.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->num_outputs() == 0) {  // an accumulator
      throw UsageError(
          "a recomputed block uses a tensor that needs a gradient and is neither an input nor a "
          "parameter of the block, so its gradient would be lost: pass it as an input");
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.function) open.push_back(edge.function.get());
    }
  }
}

// The node does not return gradients of parameters that were frozen in forward.
void expect_still_frozen(const variable_list& frozen) {
  for (const auto& parameter : frozen) {
    if (!parameter.requires_grad()) continue;
    throw UsageError(fmt::format(
        "a parameter [{}] of a recomputed block was frozen in forward() and unfrozen before "
        "backward(), so its gradient would be lost: call requires_grad_() before forward()",
        fmt::join(parameter.sizes(), ", ")));
  }
}

// Removes user hooks from tensors until the end of the scope: autograd::grad would run them, and
// the outer backward runs them again.
class WithoutHooks {
 public:
  explicit WithoutHooks(variable_list tensors) : tensors_(std::move(tensors)) {
    for (const auto& tensor : tensors_) kept_.push_back(std::exchange(hooks_of(tensor), {}));
  }
  WithoutHooks(const WithoutHooks&) = delete;
  WithoutHooks& operator=(const WithoutHooks&) = delete;
  ~WithoutHooks() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) hooks_of(tensors_[i]) = std::move(kept_[i]);
  }

 private:
  using Hooks = std::vector<std::unique_ptr<autograd::FunctionPreHook>>;

  static Hooks& hooks_of(const at::Tensor& tensor) { return autograd::impl::hooks(tensor); }

  variable_list tensors_;
  std::vector<Hooks> kept_;
};

// The outputs that have a gradient, with their gradients.
struct Seeded {
  variable_list outputs;
  variable_list gradients;
};

Seeded seeded(const variable_list& outputs, const variable_list& gradients) {
  Seeded found;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    found.outputs.push_back(outputs[i]);
    found.gradients.push_back(gradients[i]);
  }
  return found;
}

class Recomputed : public autograd::Function<Recomputed> {
 public:
  static variable_list forward(autograd::AutogradContext* context, at::TensorList tensors,
                               const c10::intrusive_ptr<RecomputedBlock>& block) {
    const auto count = block->num_inputs;
    const variable_list inputs(tensors.begin(),
                               tensors.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<std::uint32_t> versions;
    for (const auto& input : inputs) {
      versions.push_back(input.defined() ? static_cast<std::uint32_t>(input._version()) : 0);
    }
    auto outputs = [&] {
      const ForwardRecord::Recording first(block->reduced);
      return block->forward(inputs);
    }();
    expect_same_versions(inputs, versions);
    variable_list fixed;
    for (const auto& output : outputs) {
      block->differentiable.push_back(output.is_floating_point() || output.is_complex());
      if (!block->differentiable.back()) fixed.push_back(output);
    }
    context->mark_non_differentiable(fixed);
    context->save_for_backward(variable_list(tensors.begin(), tensors.end()));
    context->saved_data["block"] = c10::IValue::make_capsule(block);
    return outputs;
  }

  static variable_list backward(autograd::AutogradContext* context, variable_list gradients) {
    const auto block = c10::static_intrusive_pointer_cast<RecomputedBlock>(
        context->saved_data["block"].toCapsule());
    const auto saved = context->get_saved_variables();
    const auto count = block->num_inputs;
    // With create_graph the inputs keep their history.
    const bool keeps_history = at::GradMode::is_enabled();
    variable_list inputs;
    for (std::size_t i = 0; i < count; ++i) {
      if (!saved[i].defined()) {
        inputs.emplace_back();
        continue;
      }
      const at::AutoGradMode on(true);
      inputs.push_back(keeps_history
                           ? at::alias(saved[i])
                           : saved[i].detach().set_requires_grad(saved[i].requires_grad()));
    }
    expect_still_frozen(block->frozen);
    const auto outputs = block->run_again(inputs, device_of(saved));
    auto ends = inputs;
    ends.insert(ends.end(), saved.begin() + static_cast<std::ptrdiff_t>(count), saved.end());
    if (!keeps_history) expect_known_ends(outputs, ends);
    return gradients_of(outputs, gradients, ends, keeps_history);
  }

 private:
  // One gradient per tensor of `ends`, undefined if there is none, and one for the block argument.
  static variable_list gradients_of(const variable_list& outputs, const variable_list& gradients,
                                    const variable_list& ends, bool keeps_history) {
    variable_list wanted;
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (!ends[i].defined() || !ends[i].requires_grad()) continue;
      wanted.push_back(ends[i]);
      positions.push_back(i);
    }
    variable_list all(ends.size() + 1);
    const auto seeds = seeded(outputs, gradients);
    if (seeds.outputs.empty() || wanted.empty()) return all;
    const WithoutHooks off(wanted);
    const auto found = autograd::grad(seeds.outputs, wanted, seeds.gradients,
                                      /*retain_graph=*/keeps_history,
                                      /*create_graph=*/keeps_history, /*allow_unused=*/true);
    for (std::size_t i = 0; i < positions.size(); ++i) all[positions[i]] = found[i];
    return all;
  }
};

bool any_requires_grad(const variable_list& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad();
  });
}

}  // namespace

std::vector<at::Tensor> recompute(const BlockForward& forward, const BlockState& state,
                                  std::vector<at::Tensor> inputs) {
  auto tensors = inputs;
  variable_list frozen;
  std::unordered_set<const void*> known;
  for (const auto& parameter : state.parameters) {
    if (!known.insert(parameter.unsafeGetTensorImpl()).second) continue;
    (parameter.requires_grad() ? tensors : frozen).push_back(parameter);
  }
  if (!at::GradMode::is_enabled() || !any_requires_grad(tensors)) return forward(inputs);
  const auto device = device_of(tensors);
  auto block = c10::make_intrusive<RecomputedBlock>();
  block->forward = forward;
  block->num_inputs = inputs.size();
  block->frozen = std::move(frozen);
  block->generators = GeneratorStates::now(device);
  block->autocast = AutocastStates::now(device);
  block->changed_buffers = BufferValues::of(state.buffers);
  // A cached cast from a forward without a graph would later be used as if it had one.
  const UncachedAutocast uncached;
  auto outputs = Recomputed::apply(at::TensorList(tensors), block);
  block->changed_buffers.drop_unchanged();
  return outputs;
}

}  // namespace lockstep
