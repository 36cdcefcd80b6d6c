// Batches for a GPU: workers write pinned host memory, a stream of its own copies it to the device.
//
// No call waits for the device. Three orders keep the memory right:
// - The copy of a batch waits, on the device, for the last use of the device memory that it fills
//   (`unused`, recorded on the stream of the step).
// - The step waits, on the device, for the copy of its batch (`copied`).
// - A worker writes host memory whose copy has ended; if it has not, the worker takes other memory.
//   LibTorch's allocator keeps pinned memory until the copies from it have ended.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/batch_memory.h"

namespace lockstep {
namespace {

struct BatchBuffer {
  explicit BatchBuffer(at::Device device) : copied(device.type()), unused(device.type()) {}

  std::vector<at::Tensor> host = {};
  std::vector<std::byte*> blocks = {};  // of `host`
  std::vector<at::Tensor> tensors = {};
  c10::Event copied;     // on the stream of copies
  c10::Event unused;     // on the step's stream
  bool is_read = false;  // handed out, and `unused` is not recorded yet
};

class DeviceBatchMemory final : public BatchMemory {
 public:
  explicit DeviceBatchMemory(at::Device device)
      : streams_(device.type()),
        device_(device.has_index() ? device : streams_.getDevice()),
        copies_(streams_.getStreamFromGlobalPool(device_)) {}

  void allocate(const SampleLayout& layout, int num_buffers, std::int64_t capacity) override {
    layout_ = layout.fields();
    capacity_ = capacity;
    for (int i = 0; i < num_buffers; ++i) {
      auto& buffer = buffers_.emplace_back(device_);
      buffer.tensors.resize(layout_.size());
      for (std::size_t field = 0; field < layout_.size(); ++field) renew_device(buffer, field);
      buffer.unused.record(streams_.getStream(device_));
      renew_host(buffer);
    }
  }

  std::span<std::byte* const> blocks(int buffer) override { return at(buffer).blocks; }
  std::span<const at::Tensor> tensors(int buffer) override { return at(buffer).tensors; }

  void begin_write(int buffer) override {
    auto& memory = at(buffer);
    if (!memory.copied.query()) renew_host(memory);
  }

  void end_write(int buffer, std::int64_t count) override {
    auto& memory = at(buffer);
    const c10::StreamGuard on_copies(copies_);
    memory.unused.block(copies_);
    for (std::size_t field = 0; field < layout_.size() && count > 0; ++field) {
      memory.tensors[field]
          .narrow(0, 0, count)
          .copy_(memory.host[field].narrow(0, 0, count),
                 /*non_blocking=*/true);
    }
    memory.copied.record(copies_);
  }

  void begin_read(int buffer) override {
    const auto stream = streams_.getStream(device_);
    // A batch that the caller has dropped by now is not used by the step that follows: its memory
    // can be filled while that step runs.
    for (auto& other : buffers_) {
      if (other.is_read && std::ranges::none_of(other.tensors, is_held)) release(other, stream);
    }
    auto& memory = at(buffer);
    memory.copied.block(stream);
    for (const auto& tensor : memory.tensors) record_use(tensor, stream);
    memory.is_read = true;
  }

  void recycle(int buffer) override {
    auto& memory = at(buffer);
    if (!memory.is_read) return;
    for (std::size_t field = 0; field < layout_.size(); ++field) {
      if (is_held(memory.tensors[field])) renew_device(memory, field);
    }
    release(memory, streams_.getStream(device_));
  }

 private:
  BatchBuffer& at(int buffer) { return buffers_[static_cast<std::size_t>(buffer)]; }

  // One reference is ours. A new one can only be made from another existing reference.
  static bool is_held(const at::Tensor& tensor) { return tensor.storage().use_count() > 1; }

  static void release(BatchBuffer& buffer, const c10::Stream& stream) {
    buffer.unused.record(stream);
    buffer.is_read = false;
  }

  // If the memory is freed, the allocator waits for the work that `stream` has by then.
  void record_use(const at::Tensor& tensor, const c10::Stream& stream) const {
    streams_.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }

  [[nodiscard]] at::Tensor make(std::size_t field, const at::TensorOptions& options) const {
    std::vector<std::int64_t> shape{capacity_};
    shape.insert(shape.end(), layout_[field].shape.begin(), layout_[field].shape.end());
    return at::empty(shape, options.dtype(layout_[field].dtype));
  }

  void renew_device(BatchBuffer& buffer, std::size_t field) const {
    buffer.tensors[field] = make(field, at::device(device_));
    record_use(buffer.tensors[field], copies_);
  }

  void renew_host(BatchBuffer& buffer) const {
    const c10::DeviceGuard on_device(device_);  // pinned for its context
    buffer.host.resize(layout_.size());
    buffer.blocks.resize(layout_.size());
    for (std::size_t field = 0; field < layout_.size(); ++field) {
      buffer.host[field] = make(field, at::TensorOptions().pinned_memory(true));
      buffer.blocks[field] = static_cast<std::byte*>(buffer.host[field].data_ptr());
    }
  }

  c10::impl::VirtualGuardImpl streams_;
  at::Device device_;
  c10::Stream copies_;
  std::vector<Field> layout_;
  std::int64_t capacity_ = 0;
  std::vector<BatchBuffer> buffers_;
};

}  // namespace

std::unique_ptr<BatchMemory> batch_memory_on(at::Device device) {
  if (device.is_cpu()) return host_batch_memory();
  if (!device.is_cuda()) {
    throw UsageError(
        fmt::format("batches on the device {} are not supported: use cpu or cuda", device.str()));
  }
  const int available = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (available == 0 || (device.has_index() && device.index() >= available)) {
    throw UsageError(fmt::format(
        "batches on {}: {}. Use LoaderOptions::device = torch::kCPU, or check nvidia-smi, "
        "CUDA_VISIBLE_DEVICES and the CUDA line that configure prints",
        device.str(),
        available == 0 ? "this process sees no GPU"
                       : fmt::format("this process sees {} GPUs, numbered from 0", available)));
  }
  return std::make_unique<DeviceBatchMemory>(device);
}

}  // namespace lockstep
