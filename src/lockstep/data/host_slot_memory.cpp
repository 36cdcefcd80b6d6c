#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

#include "lockstep/data/slot_memory.h"

namespace lockstep {
namespace {

class HostSlotMemory final : public SlotMemory {
 public:
  void allocate(const SampleLayout& layout, int num_slots, std::int64_t capacity) override {
    layout_ = layout.fields();
    capacity_ = capacity;
    slots_.resize(static_cast<std::size_t>(num_slots));
    for (auto& slot : slots_) {
      slot.tensors.resize(layout_.size());
      slot.blocks.resize(layout_.size());
      for (std::size_t field = 0; field < layout_.size(); ++field) renew(slot, field);
    }
  }

  std::span<std::byte* const> blocks(int slot) override { return at(slot).blocks; }
  std::span<const at::Tensor> tensors(int slot) override { return at(slot).tensors; }
  void begin_write(int /*slot*/) override {}
  void end_write(int /*slot*/, std::int64_t /*count*/) override {}
  void begin_read(int /*slot*/) override {}

  void recycle(int slot) override {
    auto& memory = at(slot);
    for (std::size_t field = 0; field < layout_.size(); ++field) {
      // One reference is ours. Nobody can add to it but those who hold another one.
      const auto& storage = memory.tensors[field].storage();
      if (storage.use_count() > 1) {
        renew(memory, field);
      } else {
        // The count was read without order. What others did with the memory before they let go of
        // it must come before what a worker writes there: a reference that ends sees to that.
        const c10::Storage passing(storage);
      }
    }
  }

 private:
  struct Slot {
    std::vector<at::Tensor> tensors;
    std::vector<std::byte*> blocks;
  };

  Slot& at(int slot) { return slots_[static_cast<std::size_t>(slot)]; }

  void renew(Slot& slot, std::size_t field) const {
    std::vector<std::int64_t> shape{capacity_};
    shape.insert(shape.end(), layout_[field].shape.begin(), layout_[field].shape.end());
    slot.tensors[field] = at::empty(shape, at::dtype(layout_[field].dtype));
    slot.blocks[field] = static_cast<std::byte*>(slot.tensors[field].data_ptr());
  }

  std::vector<Field> layout_;
  std::int64_t capacity_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace

std::unique_ptr<SlotMemory> host_slot_memory() { return std::make_unique<HostSlotMemory>(); }

}  // namespace lockstep
