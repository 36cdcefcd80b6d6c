#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "lockstep/train/capture_watch_internal.h"

namespace lockstep {
namespace {

// LibTorch's callback is a plain function: it has no other way to find the watch.
std::atomic<CaptureWatch*> the_watch = nullptr;

bool is_read_on_cpu(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.dim() > 0;
}

bool is_read_on_cpu(const c10::IValue& input) {
  if (input.isTensor()) return is_read_on_cpu(input.toTensor());
  if (!input.isTensorList()) return false;
  const auto list = input.toTensorVector();
  return std::any_of(list.begin(), list.end(),
                     [](const at::Tensor& tensor) { return is_read_on_cpu(tensor); });
}

// This file is compiled with NDEBUG, as LibTorch is: otherwise inputs() tests a member that the
// library's objects do not have, and throws or not by what is in the padding.
#ifndef NDEBUG
#error "capture_watch.cpp needs NDEBUG"
#endif
bool reads_cpu_tensor(const at::RecordFunction& function) {
  const auto inputs = function.inputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const auto& input) { return is_read_on_cpu(input); });
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  if (auto* watch = the_watch.load()) watch->note(function);
  return nullptr;
}

}  // namespace

CaptureWatch::CaptureWatch() {
  the_watch = this;
  handle_ = at::addGlobalCallback(at::RecordFunctionCallback(on_operator)
                                      .needsInputs(true)
                                      .scopes({at::RecordScope::FUNCTION}));
}

CaptureWatch::~CaptureWatch() {
  at::removeCallback(handle_);
  the_watch = nullptr;
}

void CaptureWatch::note(const at::RecordFunction& function) {
  using c10::cuda::CaptureStatus;
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() == CaptureStatus::None) return;
  const bool reads_cpu = reads_cpu_tensor(function);
  const std::lock_guard lock(mutex_);
  last_ = function.name();
  if (reads_cpu && cpu_.empty()) cpu_ = last_;
}

std::string CaptureWatch::last_operator() const {
  const std::lock_guard lock(mutex_);
  return last_.empty() ? "a function outside LibTorch" : last_;
}

std::string CaptureWatch::cpu_operator() const {
  const std::lock_guard lock(mutex_);
  return cpu_;
}

}  // namespace lockstep
