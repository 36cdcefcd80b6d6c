#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/ddp/value_marks_internal.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

// A value that changes when an optimizer steps. LibTorch's optimizers do not change version
// counters, so it includes a few cache lines spread over the parameter.
std::uint64_t mark_of(const at::Tensor& parameter) {
  // Reading device memory would wait for the device: there, only steps of lockstep's optimizers and
  // in-place operators are detected.
  if (!parameter.is_cpu()) return static_cast<std::uint64_t>(parameter._version());
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kLines = 8;
  const std::span bytes(static_cast<const std::byte*>(parameter.const_data_ptr()),
                        parameter.nbytes());
  const auto stride = std::max(kLine, bytes.size() / kLines);
  std::uint64_t mark = parameter._version();
  for (std::size_t at = 0; at < bytes.size(); at += stride) {
    mark = mark * 31 + digest(bytes.subspan(at, std::min(kLine, bytes.size() - at)));
  }
  return mark;
}

}  // namespace

void ValueMarks::set(int parameter, int buffer) {
  const auto index = static_cast<std::size_t>(parameter);
  marks_[index] = Mark{buffer, mark_of(flat_.parameters()[index].tensor)};
}

void ValueMarks::clear(int parameter) { marks_[static_cast<std::size_t>(parameter)].reset(); }
void ValueMarks::clear() noexcept { std::fill(marks_.begin(), marks_.end(), std::nullopt); }

bool ValueMarks::is_changed(int parameter) const {
  const auto index = static_cast<std::size_t>(parameter);
  return marks_[index] && marks_[index]->value != mark_of(flat_.parameters()[index].tensor);
}

void ValueMarks::expect_unchanged(int parameter, int buffer) const {
  const auto& mark = marks_[static_cast<std::size_t>(parameter)];
  if (!mark || mark->buffer != buffer || !is_changed(parameter)) return;
  throw UsageError(fmt::format(
      "parameter {} was changed after a backward under no_sync() and before its gradients were "
      "averaged: the replicas differ now. Step only after a backward outside no_sync()",
      flat_.parameters()[static_cast<std::size_t>(parameter)].name));
}

}  // namespace lockstep
