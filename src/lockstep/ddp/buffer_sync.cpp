#include "lockstep/ddp/buffer_sync.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

namespace {

// One call for all buffers of a device.
void broadcast_packed(const std::vector<at::Tensor>& buffers, const ProcessGroup& group, int root) {
  std::int64_t bytes = 0;
  std::vector<std::int64_t> begins;
  constexpr std::int64_t kAlignment = 16;  // a view of any dtype may begin there
  for (const auto& buffer : buffers) {
    begins.push_back(bytes);
    bytes +=
        (static_cast<std::int64_t>(buffer.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  auto packed = at::zeros({bytes}, at::dtype(at::kByte).device(buffers.front().device()));
  const auto part_of = [&](std::size_t i) {
    return packed.narrow(0, begins[i], static_cast<std::int64_t>(buffers[i].nbytes()))
        .view(buffers[i].scalar_type())
        .view(buffers[i].sizes());
  };
  if (group.rank() == root) {
    for (std::size_t i = 0; i < buffers.size(); ++i) part_of(i).copy_(buffers[i]);
  }
  group.broadcast(packed, root, {.name = "buffers"}).wait();
  if (group.rank() == root) return;
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].variable_data().copy_(part_of(i));
}

}  // namespace

void broadcast_buffers(torch::nn::Module& module, const ProcessGroup& group, int root,
                       const std::vector<at::Tensor>& except) {
  if (group.size() == 1) return;
  const at::NoGradGuard off;
  std::map<std::string, std::vector<at::Tensor>> by_device;  // in the same order on all ranks
  for (const auto& buffer : module.buffers()) {
    if (!buffer.defined() || buffer.numel() == 0) continue;
    const bool is_excepted = std::any_of(
        except.begin(), except.end(), [&](const at::Tensor& each) { return each.is_same(buffer); });
    if (!is_excepted) by_device[buffer.device().str()].push_back(buffer);
  }
  for (const auto& [device, buffers] : by_device) broadcast_packed(buffers, group, root);
}

}  // namespace lockstep
