#include "lockstep/ddp/buffer_sync.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace lockstep {

void broadcast_buffers(torch::nn::Module& module, const ProcessGroup& group, int root) {
  if (group.size() == 1) return;
  std::vector<at::Tensor> buffers;
  std::int64_t bytes = 0;
  for (const auto& buffer : module.buffers()) {
    if (!buffer.defined()) continue;
    buffers.push_back(buffer);
    bytes += static_cast<std::int64_t>(buffer.nbytes());
  }
  if (buffers.empty()) return;
  const at::NoGradGuard off;
  auto packed = at::empty({bytes}, at::kByte);
  auto* const start = static_cast<std::byte*>(packed.data_ptr());
  std::size_t offset = 0;
  if (group.rank() == root) {
    for (const auto& buffer : buffers) {
      const auto dense = buffer.contiguous();
      std::memcpy(start + offset, dense.const_data_ptr(), dense.nbytes());
      offset += dense.nbytes();
    }
  }
  group.broadcast(packed, root, {.name = "buffers"}).wait();
  if (group.rank() == root) return;
  for (const auto& buffer : buffers) {
    auto dense = at::empty(buffer.sizes(), buffer.options());
    std::memcpy(dense.data_ptr(), start + offset, dense.nbytes());
    offset += dense.nbytes();
    buffer.variable_data().copy_(dense);
  }
}

}  // namespace lockstep
