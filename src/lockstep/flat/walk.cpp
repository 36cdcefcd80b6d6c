#include "lockstep/flat/walk.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/flat/device_walk.h"
#include "lockstep/flat/like_internal.h"
#include "lockstep/flat/parallel.h"
#include "lockstep/flat/with_elements_internal.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/kernels/noted_loops.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

// Calls loop(loops, begin, part) for parts of the tensor's elements, where `loops` is the
// NotedLoops of their type for this processor. Returns whether one of these calls returned true.
template <typename Loop>
bool any_part(const at::Tensor& tensor, const Loop& loop) {
  constexpr std::size_t kUnit =
      32;  // a cache line of 16-bit elements, so that threads share no line
  const auto set = best_instruction_set();
  return with_elements(tensor, [&]<typename T>(std::span<T> elements) {
    std::atomic<bool> found = false;
    in_parts(elements.size(), kUnit, [&](std::size_t begin, std::size_t end) {
      const auto part = elements.subspan(begin, end - begin);
      if (dispatch<NotedLoops, T>(set, [&](auto loops) { return loop(loops, begin, part); })) {
        found = true;
      }
    });
    return found.load();
  });
}

}  // namespace

at::Tensor like(const at::Tensor& to, const at::Tensor& from) {
  if (from.layout() == at::kStrided && from.scalar_type() == to.scalar_type() &&
      from.strides() == to.strides() && from.sizes() == to.sizes() && !from.is_conj() &&
      !from.is_neg()) {
    return from;
  }
  auto converted = at::empty_strided(to.sizes(), to.strides(), to.options());
  if (from.layout() == at::kStrided) return converted.copy_(from);
  return converted.zero_().add_(from);
}

bool copy_noting_non_finite(const at::Tensor& to, const at::Tensor& from) {
  const auto source = like(to, from);
  if (to.is_cuda()) {
    to.copy_(source, /*non_blocking=*/true);
    return false;
  }
  // Decided by the size of the whole storage: it tells whether `to` will be evicted from the caches
  // before it is read, however small this part is.
  const auto caching = caching_for(to.storage().nbytes());
  return any_part(to, [&]<typename T>(auto loops, std::size_t begin, std::span<T> part) {
    return loops.copy(part, static_cast<const T*>(source.const_data_ptr()) + begin, caching);
  });
}

bool add_noting_non_finite(const at::Tensor& to, const at::Tensor& from) {
  const auto source = like(to, from);
  if (to.is_cuda()) {
    to.add_(source);
    return false;
  }
  return any_part(to, [&]<typename T>(auto loops, std::size_t begin, std::span<T> part) {
    return loops.add(part, static_cast<const T*>(source.const_data_ptr()) + begin);
  });
}

bool has_non_finite(const at::Tensor& flat) {
  if (flat.is_cuda()) return non_finite_on_device(flat).item<int>() != 0;
  return any_part(flat,
                  [](auto loops, std::size_t, auto part) { return loops.has_non_finite(part); });
}

double squared_norm(const at::Tensor& flat) {
  if (flat.is_cuda()) return squared_norm_on_device(flat).item<double>();
  const auto set = best_instruction_set();
  return with_elements(flat, [&]<typename T>(std::span<T> elements) {
    constexpr auto kCell = kCellElements<T>;
    std::vector<double> cells((elements.size() + kCell - 1) / kCell);
    in_parts(elements.size(), kCell, [&](std::size_t begin, std::size_t end) {
      if (begin == end) return;
      const auto values = std::span<const T>(elements).subspan(begin, end - begin);
      const auto sums =
          std::span(cells).subspan(begin / kCell, (values.size() + kCell - 1) / kCell);
      dispatch<SquaresLoops, T>(
          set, [&](auto loops) { loops.cells(values, std::min(kCell, values.size()), sums); });
    });
    return total_of_cells(cells);
  });
}

void scale(const at::Tensor& flat, double factor) {
  if (flat.is_cuda()) {
    flat.mul_(factor);
  } else {
    (void)scale_noting_non_finite(flat, factor);
  }
}

bool scale_noting_non_finite(const at::Tensor& flat, double factor) {
  if (flat.is_cuda()) {
    const bool found = has_non_finite(flat);
    flat.mul_(factor);
    return found;
  }
  return any_part(
      flat, [factor](auto loops, std::size_t, auto part) { return loops.multiply(part, factor); });
}

std::uint64_t digest_of(const at::Tensor& flat) {
  if (flat.is_cuda()) {
    const auto digest = digest_on_device(flat, 0, static_cast<std::int64_t>(flat.nbytes()));
    return static_cast<std::uint64_t>(digest.item<std::int64_t>());
  }
  const std::span bytes(static_cast<const std::byte*>(flat.const_data_ptr()), flat.nbytes());
  std::atomic<std::uint64_t> sum = 0;
  in_parts(bytes.size(), /*unit=*/64, [&](std::size_t begin, std::size_t end) {
    Digest part;
    part.add(begin, bytes.subspan(begin, end - begin));
    sum += part.value();
  });
  return sum;
}

}  // namespace lockstep
