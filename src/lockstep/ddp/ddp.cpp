#include "lockstep/ddp/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/ddp/ddp_state_internal.h"
#include "lockstep/ddp/option_check_internal.h"

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
  if (options.reduce_each_micro_batch && options.shard != Shard::gradients) {
    throw UsageError(
        "DdpOptions::reduce_each_micro_batch saves the memory of whole gradients, which only "
        "Shard::gradients gives back: set that too, or leave it out");
  }
}

}  // namespace

Ddp::NoSync::NoSync(Ddp& ddp) : ddp_(ddp) { ++ddp_.state_->no_sync_scopes; }
Ddp::NoSync::~NoSync() { --ddp_.state_->no_sync_scopes; }

void Ddp::Sync::wait() { ddp_->settled().finish(); }

Ddp::Ddp(torch::nn::Module& module, const ProcessGroup& group, const DdpOptions& options) {
  expect_valid(options);
  state_ = std::make_unique<State>(module, group, options);
}

Ddp::State& Ddp::settled() const {
  state_->watch.await_end();
  return *state_;
}

Ddp::~Ddp() {
  auto& state = settled();
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
  auto& state = settled();
  expect_countable(state.phase, state.buffers);
  state.tally.count(samples);
}

void Ddp::sit_out() {
  auto& state = settled();
  expect_idle(state.phase, "sit_out()");
  if (state.tally.is_counted) {
    throw UsageError(
        "sit_out() after ddp.count(): sit_out() is for a rank without a batch; call one of the "
        "two");
  }
  state.sit_out();
}

void Ddp::set_hook(GradientHook hook) {
  auto& state = settled();
  expect_idle(state.phase, "set_hook()");
  if (state.attempted || state.hook) {
    throw UsageError(fmt::format(
        "set_hook() of {} came after {}: a Ddp has one hook, set before "
        "its first backward()",
        hook.name(),
        state.hook ? "set_hook() of " + state.hook->name() : std::string("a backward()")));
  }
  expect_same_hook(state.group, hook);
  state.set_hook(std::move(hook));
}

int Ddp::num_sitting_out() const { return settled().group_flags.num_absent; }
bool Ddp::should_step() const { return settled().should_step(); }
bool Ddp::non_finite() const {
  auto& state = settled();
  const bool found = state.is_non_finite();
  if (state.flat.values(0).is_cuda()) state.report_non_finite();  // now it is known
  return found;
}

std::vector<std::string> Ddp::non_finite_parameters() const {
  return settled().non_finite_parameters();
}

Ddp::Sync Ddp::start() {
  auto& state = settled();
  expect_idle(state.phase, "start()");
  state.start();
  return Sync(*this);
}

void Ddp::sync_buffers(int root) { state_->copy_buffers(root); }

void Ddp::adopt() {
  expect_idle(settled().phase, "adopt()");
  state_->abandon_step();
  state_->flat.adopt();
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

void Ddp::rebind(const ProcessGroup& group) {
  if (runs_backward(settled().phase)) {
    throw UsageError("rebind() was called during a backward: call it between steps");
  }
  state_->abandon_step();
  state_->gradients = StepGradients::invalid;  // the new ranks may have other gradients
  state_->group = agree_on_group(group, state_->options);
  state_->flat.rebind(state_->group);
  state_->flat.slots().listen(state_.get());
  state_->prepare();
}

void Ddp::write_parameters(const std::function<void()>& write) {
  expect_idle(settled().phase, "write_parameters()");
  state_->flat.write_values(write);
}

FlatParameters& Ddp::flat() noexcept { return state_->flat; }
const BucketPlan& Ddp::plan() const { return settled().filled().plan(); }
const StepRecord& Ddp::record() const { return settled().record; }

}  // namespace lockstep
