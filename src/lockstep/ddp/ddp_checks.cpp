// The checks and reports of a Ddp: gradients of a failed step, failed backwards, non-finite
// gradients, warnings at the end.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/walk.h"

namespace lockstep {

void Ddp::State::discard_invalid_gradients() {
  if (gradients != StepGradients::invalid) return;
  // On a GPU, the reduction of a failed step may still write to the slots, on another stream.
  const auto device = flat.values(0).device();
  if (device.is_cuda()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
  flat.slots().discard();
  gradients = StepGradients::open;
}

// With weighted averaging, `.grad` must not still hold the previous step's average: it would be
// divided twice.
void Ddp::State::expect_no_average(int index) const {
  if (!rules().by_count && rules().accumulate == 1) return;
  const auto& parameter = flat.parameters()[static_cast<std::size_t>(index)];
  if (squared_norm(parameter.gradient) == 0) return;
  throw UsageError(fmt::format(
      "the gradient of {} still holds the average of the last step: call zero_grad() between "
      "steps, and run all but the last backward of a step under no_sync()",
      parameter.name));
}

// With shards an optimizer over the module's parameters would change nothing: they have no `.grad`.
void Ddp::State::expect_shards_in_use() {
  flat.expect_intact();
  flat.expect_shared();
  if (!flat.shards().is_sharded() || flat.has_updater() || attempts < 2) return;
  throw UsageError(
      "no optimizer updates the shards: with DdpOptions::shard `.grad` is undefined after "
      "backward(), and an optimizer over the module's parameters changes nothing. Use "
      "lockstep::AdamW(ddp.flat()) or another optimizer over ddp.flat(), or give "
      "ddp.flat().owned() "
      "to one of torch::optim");
}

// A replay executes the calls of the capture on the device, and nothing that the host does in a
// step.
void Ddp::State::expect_not_captured() const {
  const auto device = flat.values(0).device();
  if (!device.is_cuda() || !is_capturing(current_stream(device))) return;
  const auto refuse = [](const std::string& what, std::string_view fix) {
    throw UsageError(
        fmt::format("a CUDA graph of a step {} is unsupported: {}, or run the steps without "
                    "CudaGraphStep",
                    what, fix));
  };
  if (hook) refuse("with a hook", "leave out the hook");
  if (rules().by_count) {
    refuse("with Normalize::by_count, whose numbers of samples would be those of the capture,",
           "use Normalize::by_rank");
  }
  if (group.size() == 1) return;
  if (group.backend(device) != "nccl") {
    refuse(fmt::format("of {} ranks over backend {}", group.size(), group.backend(device)),
           "give each rank its own GPU, which backend nccl needs");
  }
  if (flat.shards().is_sharded()) refuse("with shards", "leave out DdpOptions::shard");
}

void Ddp::State::give_up() noexcept {
  end_failed_micro_batch();
  complete_calls();
  phase = Phase::idle;
  gradients = StepGradients::invalid;
  buffers = {flat.gradient_buffer(), flat.gradient_buffer()};
  tally = {};
  forget_partial();
  group_flags = {};
  non_finite_result.reset();
  marks->clear();
  for (auto& reducer : reducers) reducer.forget();
  for (int buffer = 0; buffer < flat.num_gradient_buffers(); ++buffer) {
    if (buffer != buffers.filling) flat.slots().drop(buffer);
  }
}

void Ddp::State::end_failed_micro_batch() noexcept {
  try {
    end_micro_batch();
  } catch (const std::exception&) {
    // The group has failed, and reports it in the next call.
  }
}

// Without this, the other ranks would wait in calls that this rank's next backward then makes, one
// step behind.
void Ddp::State::complete_calls() noexcept {
  if (!reduced().is_begun()) return;
  const auto quietly = [](auto action) {
    try {
      action();
    } catch (const std::exception&) {
      // The first error is being thrown already. A failed group reports itself in the next call.
    }
  };
  const int in_use = flat.gradient_buffer();
  quietly([this] {
    flat.use_gradient_buffer(buffers.reducing);
    reduced().start_rest_as_failed();
    finish_reduction();
  });
  quietly([this, in_use] { flat.use_gradient_buffer(in_use); });
}

void Ddp::State::report_failed_ranks(bool here, std::int64_t number) const {
  auto own = at::full({1}, here ? 1 : 0, at::kByte);
  auto all = at::empty({group.size()}, at::kByte);
  group.all_gather(all, own, {.name = "failed backwards"}).wait();
  const auto* failed = all.const_data_ptr<std::uint8_t>();
  const auto* first = std::find(failed, failed + group.size(), 1);
  const int rank = group.global_rank(static_cast<int>(first - failed));
  if (const auto failure = reduction->failure()) std::rethrow_exception(failure);
  throw PeerError(
      rank,
      fmt::format(
          "the backward of rank {} failed ({} of {} ranks, in backward {}); see the output "
          "of rank {} for the reason. No rank has averaged the gradients of this step: continue "
          "on every rank, the next backward begins without them, or end the job",
          rank, std::count(failed, failed + group.size(), 1), group.size(), number, rank));
}

bool Ddp::State::should_step() const {
  if (gradients != StepGradients::averaged) return false;
  if (flat.shards().is_sharded()) return !flat.present_gradients().empty();
  const auto& slots = flat.slots();
  return slots.any(GradientState::stale, buffers.reducing) ||
         slots.any(GradientState::fresh, buffers.reducing);
}

// Sums of finite gradients may overflow, except float16, which is summed in float32. The averages
// are bit-identical on all ranks, so every rank finds the same; with shards each searches its own,
// and the ranks tell each other. Only callers of non_finite() pay
// for it. Gradients on a GPU are not noted when they arrive, so they are always searched.
bool Ddp::State::is_non_finite() {
  if (has(group_flags, StepFlags::kNonFinite)) return true;
  if (gradients != StepGradients::averaged) return false;
  if (non_finite_result) return *non_finite_result;
  bool found = false;
  for (const auto& range : flat.owned_gradients()) {
    const auto averages = flat.averages(range);
    const bool is_noted = group.size() == 1 || averages.scalar_type() == at::kHalf;
    if (averages.is_cpu() && is_noted) continue;
    if (has_non_finite(averages)) found = true;
  }
  auto of_any = at::full({1}, found ? 1 : 0, at::kByte);
  flat.combine_largest(of_any);
  non_finite_result = of_any.item<std::uint8_t>() != 0;
  return *non_finite_result;
}

std::vector<std::string> Ddp::State::non_finite_parameters() const {
  const auto parameters = flat.parameters();
  std::vector<std::string> names;
  for (const int i : non_finite) names.push_back(parameters[static_cast<std::size_t>(i)].name);
  const bool any_on_gpu =
      std::any_of(parameters.begin(), parameters.end(),
                  [](const FlatParameter& parameter) { return parameter.tensor.is_cuda(); });
  if (!any_on_gpu) return names;
  const auto notes = flat.slots().read_non_finite();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (notes[i]) names.push_back(parameters[i].name);
  }
  return names;
}

void Ddp::State::report_non_finite() {
  const bool is_noted = has(group_flags, StepFlags::kNonFinite);
  const bool is_read = non_finite_result.value_or(false);  // gradients on a GPU are not noted
  if (non_finite_reported || !(is_noted || is_read)) return;
  non_finite_reported = true;  // on all ranks: later ones may be consequences
  const Log log({.rank = group.global_rank(group.rank())});
  const auto names = non_finite_parameters();
  if (names.empty() && hooked != nullptr && hooked->has_overflowed()) {
    log.warning(fmt::format(
        "hook {} got finite gradients on this rank in backward {}, and what it sends is "
        "non-finite: "
        "the average is non-finite on all ranks, and ddp.non_finite() is true. Use a GradScaler "
        "with a smaller scale, or bf16, which has the range of float32. This is reported once",
        hooked->hook().name(), reduced().number()));
  }
  if (names.empty()) return;
  log.warning(fmt::format(
      "the gradient of {}{} is non-finite on this rank in backward {}: the average is non-finite "
      "on all ranks, and ddp.non_finite() is true. Check this rank's batch and loss, or use a "
      "GradScaler, which skips such steps. This is reported once",
      names.front(),
      names.size() > 1 ? fmt::format(" (and of {} more parameters)", names.size() - 1) : "",
      reduced().number()));
}

void Ddp::State::report_at_end() {
  const Log log({.rank = group.global_rank(group.rank())});
  // A later gradient distinguishes a temporary Ddp from a run that had nothing to train.
  if (!attempted && group.size() > 1 && group.rank() == 0) {
    flat.slots().when_gone([log](const std::string& name) {
      log.warning(
          fmt::format("a gradient of {} is not averaged: its Ddp was destroyed and has reduced no "
                      "gradients. Is it a temporary? Gradients are averaged only while the Ddp "
                      "lives: keep it in a variable in the scope of the training loop",
                      name));
    });
  }
  for (int i = 0; i < num_parameters(); ++i) {
    if (!marks->is_changed(i)) continue;
    log.warning(
        "an optimizer step used gradients of a backward under no_sync() that were never averaged: "
        "run the last backward of a step outside no_sync(), or call start() and wait() after it");
    break;
  }
  if (const auto names = flat.moved_parameters(); !names.empty()) {
    log.warning(fmt::format(
        "parameters left registered memory and were not averaged since: {}; move or load them "
        "before the Ddp is made, or call adopt() on all ranks",
        fmt::join(names, ", ")));
  }
  if (const auto names = flat.added_parameters(); !names.empty()) {
    log.warning(
        fmt::format("parameters were added to the module since the Ddp was made, and their "
                    "gradients were never averaged: {}; register every parameter before you make "
                    "the Ddp",
                    fmt::join(names, ", ")));
  }
}

}  // namespace lockstep
