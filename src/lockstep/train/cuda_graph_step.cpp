#include "lockstep/train/cuda_graph_step.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/collectives/captured_calls.h"
#include "lockstep/train/capture_watch_internal.h"

namespace lockstep {
namespace {

constexpr auto kAdvice =
    "A captured step must not read numbers of the device on the host (item(), should_step() of a "
    "GradScaler, a norm or a loss) and must not use CPU tensors: do this outside of the function";

std::string form_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// A capture that CUDA has invalidated leaves LibTorch's allocators and random generators in the
// state of a capture. The allocators are told its end, before the graph that they refer to is
// destroyed; a capture of nothing brings the generators back.
void leave_broken_capture(std::unique_ptr<at::cuda::CUDAGraph> broken, c10::DeviceIndex device,
                          c10::MempoolId_t pool) {
  (void)cudaGetLastError();
  const auto quietly = [](auto action) {
    try {
      action();
    } catch (const c10::Error&) {
      // It had ended.
    }
  };
  quietly([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool); });
  quietly([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
  broken.reset();
  at::cuda::CUDAGraph nothing;
  nothing.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
  (void)at::zeros({1}, at::kCUDA);
  nothing.capture_end();
}

// `stream` waits for all that is on `leader`.
void follow(const c10::cuda::CUDAStream& stream, const c10::cuda::CUDAStream& leader) {
  at::cuda::CUDAEvent event;
  event.record(leader);
  event.block(stream);
}

// While it exists, calls of `groups` become part of the graph that is captured.
class Allowed {
 public:
  explicit Allowed(const std::vector<ProcessGroup>& groups) : groups_(groups) { set(true); }
  Allowed(const Allowed&) = delete;
  Allowed& operator=(const Allowed&) = delete;
  ~Allowed() { set(false); }

 private:
  void set(bool allowed) const noexcept {
    for (const auto& group : groups_) CapturedCalls(group).allow(allowed);
  }
  const std::vector<ProcessGroup>& groups_;
};

}  // namespace

struct CudaGraphStep::State {
  State(Function the_function, const CudaGraphStepOptions& the_options)
      : function(std::move(the_function)), options(the_options) {}

  void copy_in(const std::vector<at::Tensor>& batch);
  void replay();
  void run_aside();
  void capture();

  Function function;
  CudaGraphStepOptions options;
  int calls = 0;
  std::vector<at::Tensor> inputs;  // the memory of the batch
  at::Tensor loss;
  std::optional<c10::cuda::CUDAStream> side;  // of warm-up and capture
  std::unique_ptr<at::cuda::CUDAGraph> graph;
};

CudaGraphStep::CudaGraphStep(Function function, const CudaGraphStepOptions& options)
    : state_(std::make_unique<State>(std::move(function), options)) {
  if (options.warmup < 1) {
    throw UsageError(fmt::format("CudaGraphStep with a warm-up of {} steps: expected at least 1",
                                 options.warmup));
  }
}

CudaGraphStep::~CudaGraphStep() = default;

bool CudaGraphStep::is_captured() const noexcept { return state_->graph != nullptr; }

at::Tensor CudaGraphStep::operator()(const std::vector<at::Tensor>& batch) {
  auto& state = *state_;
  state.copy_in(batch);
  if (state.graph == nullptr) state.run_aside();
  if (state.graph != nullptr) state.replay();
  return state.loss;
}

void CudaGraphStep::State::replay() {
  for (const auto& group : options.groups) CapturedCalls(group).enter_replay(loss.device());
  graph->replay();
  for (const auto& group : options.groups) CapturedCalls(group).note_replay(loss.device());
}

void CudaGraphStep::State::copy_in(const std::vector<at::Tensor>& batch) {
  const at::NoGradGuard off;
  if (inputs.empty()) {
    for (const auto& tensor : batch) {
      inputs.push_back(at::empty(tensor.sizes(), tensor.options().device(at::kCUDA)));
    }
  }
  if (inputs.size() != batch.size()) {
    throw UsageError(
        fmt::format("CudaGraphStep: a batch of {} tensors after one of {}: every step "
                    "needs the same number",
                    batch.size(), inputs.size()));
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i].sizes() != inputs[i].sizes() ||
        batch[i].scalar_type() != inputs[i].scalar_type()) {
      throw UsageError(
          fmt::format("CudaGraphStep: tensor {} of the batch is {}, and it was {} in the first "
                      "step: every step needs the same shapes. Tail::drop or Tail::pad of the "
                      "Loader gives full batches",
                      i, form_of(batch[i]), form_of(inputs[i])));
    }
    inputs[i].copy_(batch[i], /*non_blocking=*/true);
  }
}

// The default stream cannot be captured; all steps before the capture use the same stream, so that
// gradient nodes and allocations belong to it.
void CudaGraphStep::State::run_aside() {
  if (!side) side = c10::cuda::getStreamFromPool();
  const auto current = c10::cuda::getCurrentCUDAStream();
  follow(*side, current);
  {
    const c10::cuda::CUDAStreamGuard guard(*side);
    if (calls++ < options.warmup) {
      loss = function(inputs).detach();
    } else {
      capture();
    }
  }
  follow(current, *side);
}

// ThreadLocal: threads of a loader may use CUDA during the capture.
void CudaGraphStep::State::capture() {
  loss.reset();
  side->synchronize();
  auto captured = std::make_unique<at::cuda::CUDAGraph>();
  const CaptureWatch watch;
  std::exception_ptr error;
  const auto pool = at::cuda::graph_pool_handle();
  at::Tensor result;
  {
    const Allowed allowed(options.groups);
    captured->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      result = function(inputs).detach();
    } catch (...) {
      error = std::current_exception();
    }
  }
  const auto last = watch.last_operator();
  std::string refusal;
  try {
    captured->capture_end();
  } catch (const std::exception& failure) {
    refusal = first_line(failure.what());
    leave_broken_capture(std::move(captured), side->device_index(), pool);
  }
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    refusal = first_line(failure.what());
  }
  if (!refusal.empty()) {
    throw UsageError(
        fmt::format("the step cannot be captured as a CUDA graph because of {}: {}. {}", last,
                    refusal, kAdvice));
  }
  if (const auto name = watch.cpu_operator(); !name.empty()) {
    throw UsageError(fmt::format(
        "the step cannot be captured as a CUDA graph because of {}, which uses a CPU tensor: it "
        "would run once, and not in every replay. {}",
        name, kAdvice));
  }
  loss = std::move(result);
  graph = std::move(captured);
}

}  // namespace lockstep
