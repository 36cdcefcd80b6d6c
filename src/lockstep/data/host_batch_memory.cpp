#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "lockstep/data/batch_memory.h"

namespace lockstep {
namespace {

class HostBatchMemory final : public BatchMemory {
 public:
  void allocate(const SampleLayout& layout, int num_buffers, std::int64_t capacity) override {
    layout_ = layout.fields();
    capacity_ = capacity;
    buffers_.resize(static_cast<std::size_t>(num_buffers));
    for (auto& buffer : buffers_) {
      buffer.tensors.resize(layout_.size());
      buffer.blocks.resize(layout_.size());
      for (std::size_t field = 0; field < layout_.size(); ++field) renew(buffer, field);
    }
  }

  std::span<std::byte* const> blocks(int buffer) override { return at(buffer).blocks; }
  std::span<const at::Tensor> tensors(int buffer) override { return at(buffer).tensors; }
  void begin_write(int /*buffer*/) override {}
  void end_write(int /*buffer*/, std::int64_t /*count*/) override {}
  void begin_read(int /*buffer*/) override {}

  void recycle(int buffer) override {
    auto& memory = at(buffer);
    for (std::size_t field = 0; field < layout_.size(); ++field) {
      // One reference is ours. A new one can only be made from another existing reference.
      const auto& storage = memory.tensors[field].storage();
      if (storage.use_count() > 1) {
        renew(memory, field);
      } else {
        // use_count() is a relaxed load. The accesses of former holders must happen before a
        // worker's writes: releasing one more reference synchronizes with their releases.
        const c10::Storage passing(storage);
      }
    }
  }

 private:
  struct BatchBuffer {
    std::vector<at::Tensor> tensors;
    std::vector<std::byte*> blocks;
  };

  BatchBuffer& at(int buffer) { return buffers_[static_cast<std::size_t>(buffer)]; }

  void renew(BatchBuffer& buffer, std::size_t field) const {
    std::vector<std::int64_t> shape{capacity_};
    shape.insert(shape.end(), layout_[field].shape.begin(), layout_[field].shape.end());
    buffer.tensors[field] = at::empty(shape, at::dtype(layout_[field].dtype));
    buffer.blocks[field] = static_cast<std::byte*>(buffer.tensors[field].data_ptr());
  }

  std::vector<Field> layout_;
  std::int64_t capacity_ = 0;
  std::vector<BatchBuffer> buffers_;
};

}  // namespace

std::unique_ptr<BatchMemory> host_batch_memory() { return std::make_unique<HostBatchMemory>(); }

}  // namespace lockstep
