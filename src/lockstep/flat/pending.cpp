#include "lockstep/flat/pending.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <type_traits>

namespace lockstep {
namespace {

c10::Stream current_stream_of(const at::Tensor& tensor) {
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

}  // namespace

template <typename T>
Pending<T>::Pending(const at::Tensor& value) {
  const at::NoGradGuard off;
  const auto dtype = std::is_same_v<T, bool> ? at::kBool : at::kDouble;
  const auto number = value.detach().reshape({});
  if (!number.is_cuda()) {
    value_ = number.template item<T>();
    return;
  }
  tensor_ = number.to(dtype);
  stream_ = current_stream_of(tensor_);
}

// Read on the stream that computes it: the stream of the reader may be another one.
template <typename T>
T Pending<T>::item() const {
  if (tensor_.defined()) {
    const c10::StreamGuard guard(*stream_);
    value_ = tensor_.template item<T>();
    tensor_.reset();
  }
  return value_;
}

template <typename T>
at::Tensor Pending<T>::tensor() const {
  if (tensor_.defined()) return tensor_;
  return at::full({}, value_, std::is_same_v<T, bool> ? at::kBool : at::kDouble);
}

template <typename T>
Pending<T>& Pending<T>::operator+=(const Pending& other) {
  if constexpr (std::is_same_v<T, double>) {
    const at::NoGradGuard off;
    const bool here = tensor_.defined();
    const bool there = other.tensor_.defined();
    if (!here && !there) {
      value_ += other.value_;
      return *this;
    }
    if (here && there && tensor_.device() != other.tensor_.device()) {
      value_ = item() + other.item();
      return *this;
    }
    // Out of place: copies of both share their tensors.
    tensor_ = here ? (there ? tensor_.add(other.tensor_) : tensor_.add(other.value_))
                   : other.tensor_.add(value_);
    stream_ = current_stream_of(tensor_);
  }
  return *this;
}

template <typename T>
Pending<T> Pending<T>::times(double factor) const {
  if constexpr (std::is_same_v<T, double>) {
    if (!tensor_.defined()) return value_ * factor;
    if (factor == 1) return *this;
    const at::NoGradGuard off;
    return Pending(tensor_.mul(factor));
  } else {
    return *this;
  }
}

template class Pending<double>;
template class Pending<bool>;

}  // namespace lockstep
