#include "lockstep/flat/late_numbers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <vector>

namespace lockstep {

LateNumbers::LateNumbers(std::span<const at::Tensor> numbers)
    : values_(at::empty({static_cast<std::int64_t>(numbers.size())},
                        at::dtype(at::kLong).pinned_memory(true))),
      copied_(at::kCUDA) {
  const at::NoGradGuard off;
  const auto device = std::find_if(numbers.begin(), numbers.end(), [](const at::Tensor& number) {
                        return number.is_cuda();
                      })->device();
  std::vector<at::Tensor> there;
  for (const auto& number : numbers) {
    // A copy of ordinary memory would wait for the device.
    there.push_back(number.is_cuda() ? number.to(device)
                                     : at::full({}, number.item<std::int64_t>(),
                                                number.options().device(device)));
  }
  values_.copy_(at::stack(there), /*non_blocking=*/true);
  copied_.record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device));
}

std::span<const std::int64_t> LateNumbers::values() const {
  return {values_.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(values_.numel())};
}

}  // namespace lockstep
