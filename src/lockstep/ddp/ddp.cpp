#include "lockstep/ddp/ddp.h"

#include <fmt/format.h>

#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/ddp/option_check_internal.h"
#include "lockstep/flat/walk.h"

namespace lockstep {
namespace {

void expect_valid(const DdpOptions& options) {
  if (options.accumulate < 1) {
    throw UsageError(
        fmt::format("DdpOptions::accumulate is {}; expected the number of micro-batches per step, "
                    "1 or more",
                    options.accumulate));
  }
  if (options.gradient_buffers < 1 || options.gradient_buffers > 2) {
    throw UsageError(fmt::format(
        "DdpOptions::gradient_buffers is {}; expected 1, or 2 to run backward() between "
        "start() and wait()",
        options.gradient_buffers));
  }
}

}  // namespace

Ddp::NoSync::NoSync(Ddp& ddp) : ddp_(ddp) { ++ddp_.state_->no_sync_scopes; }
Ddp::NoSync::~NoSync() { --ddp_.state_->no_sync_scopes; }

void Ddp::Sync::wait() { ddp_->state_->finish(); }

Ddp::Ddp(torch::nn::Module& module, const ProcessGroup& group, const DdpOptions& options) {
  expect_valid(options);
  state_ = std::make_unique<State>(module, group, options);
}

Ddp::~Ddp() {
  auto& state = *state_;
  state.flat.slots().listen(nullptr);
  if (std::uncaught_exceptions() > 0) return;
  state.report_at_end();
}

void Ddp::count(std::int64_t samples) {
  if (state_->options.normalize != Normalize::by_count) {
    throw UsageError("ddp.count() needs DdpOptions{.normalize = Normalize::by_count}");
  }
  if (samples < 0) {
    throw UsageError(
        fmt::format("ddp.count({}): expected a number of samples, 0 or more", samples));
  }
  expect_countable(state_->phase, state_->buffers);
  state_->tally.count(samples);
}

void Ddp::sit_out() {
  expect_idle(state_->phase, "sit_out()");
  if (state_->tally.is_counted) {
    throw UsageError(
        "sit_out() after ddp.count(): sit_out() is for a rank without a batch; call one of the "
        "two");
  }
  state_->sit_out();
}

bool Ddp::should_step() const noexcept { return state_->should_step(); }
bool Ddp::non_finite() const noexcept { return state_->is_non_finite(); }

std::vector<std::string> Ddp::non_finite_parameters() const {
  std::vector<std::string> names;
  for (const int i : state_->non_finite) {
    names.push_back(state_->flat.parameters()[static_cast<std::size_t>(i)].name);
  }
  for (const auto& parameter : state_->flat.parameters()) {  // on a GPU they are not noted
    if (!parameter.gradient.is_cuda() || !parameter.tensor.grad().defined()) continue;
    if (has_non_finite(parameter.gradient)) names.push_back(parameter.name);
  }
  return names;
}

Ddp::Sync Ddp::start() {
  expect_idle(state_->phase, "start()");
  state_->start();
  return Sync(*this);
}

void Ddp::sync_buffers(int root) { state_->copy_buffers(root); }

void Ddp::adopt() {
  expect_idle(state_->phase, "adopt()");
  state_->keep_pending();
  state_->flat.adopt();
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

void Ddp::rebind(const ProcessGroup& group) {
  if (runs_backward(state_->phase)) {
    throw UsageError("rebind() was called during a backward: call it between steps");
  }
  state_->keep_pending();
  state_->group = agree_on_group(group, state_->options);
  state_->gradients = StepGradients::invalid;  // the new ranks may have other gradients
  state_->flat.rebind(state_->group);
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

FlatParameters& Ddp::flat() noexcept { return state_->flat; }
const BucketPlan& Ddp::plan() const noexcept { return state_->filled().plan(); }
const StepRecord& Ddp::record() const noexcept { return state_->record; }

}  // namespace lockstep
