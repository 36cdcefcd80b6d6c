#include "lockstep/flat/parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

// The fewest elements for which waking a thread costs less than the pass itself.
constexpr std::size_t kLeastPart = 1U << 15;

}  // namespace

// at::parallel_for is a template: it runs on one thread unless this file is compiled with OpenMP,
// which would create a second thread pool. TensorIterator is compiled inside LibTorch.
void in_parts(std::size_t count, std::size_t unit,
              const std::function<void(std::size_t begin, std::size_t end)>& part) {
  const auto num_parts =
      std::min(static_cast<std::size_t>(at::get_num_threads()), count / kLeastPart);
  if (num_parts <= 1 || at::in_parallel_region()) return part(0, count);
  const auto units = (count + unit - 1) / unit;
  const auto length = (units + num_parts - 1) / num_parts * unit;
  // One byte per part: the iterator distributes the bytes to threads, and a byte's address gives
  // the number of its part.
  const auto bytes = at::empty({static_cast<std::int64_t>(num_parts)}, at::kByte);
  const auto* const first = static_cast<const char*>(bytes.const_data_ptr());
  at::TensorIteratorConfig().add_output(bytes).add_const_input(bytes).build().for_each(
      [&](char** data, const std::int64_t*, std::int64_t bytes_here) {
        auto i = static_cast<std::size_t>(data[0] - first);
        for (const auto end = i + static_cast<std::size_t>(bytes_here); i < end; ++i) {
          if (i * length < count) part(i * length, std::min((i + 1) * length, count));
        }
      },
      /*grain_size=*/1);
}

}  // namespace lockstep
