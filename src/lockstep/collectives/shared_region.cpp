#include "lockstep/collectives/shared_region.h"

#include <ATen/ops/from_blob.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <utility>

#include "lockstep/fabric/data_plane.h"
#include "lockstep/net/shared_memory.h"

namespace lockstep {

struct SharedRegion::Mappings {
  explicit Mappings(std::shared_ptr<RegisteredMemory> memory)
      : registered(std::move(memory)), view(registered->view_all_parts()) {}

  [[nodiscard]] std::byte* shared_start() const { return registered->all_parts().data(); }
  [[nodiscard]] std::byte* view_start() const { return view ? view->bytes().data() : nullptr; }

  /// The mappings of a pointer that view() has made; null for any other.
  [[nodiscard]] static const Mappings* of(const at::DataPtr& pointer) {
    if (pointer.get_deleter() != &release) return nullptr;
    return static_cast<const std::shared_ptr<Mappings>*>(pointer.get_context())->get();
  }
  static void release(void* held) { delete static_cast<std::shared_ptr<Mappings>*>(held); }

  void forget_writes() const noexcept {
    if (view) view->forget_writes();
  }

  std::shared_ptr<RegisteredMemory> registered;
  std::unique_ptr<PrivateView> view;
  mutable std::atomic<std::int64_t> num_handed_out{0};
};

SharedRegion::SharedRegion(std::shared_ptr<RegisteredMemory> memory, std::int64_t bytes)
    : mappings_(std::make_shared<Mappings>(std::move(memory))), bytes_(bytes) {}

at::Tensor SharedRegion::shared() const {
  return at::from_blob(
      mappings_->shared_start(), {bytes_}, [held = mappings_](void* /*start*/) {}, at::kByte);
}

at::DataPtr SharedRegion::view() const {
  return {mappings_->view_start(), new std::shared_ptr<Mappings>(mappings_), &Mappings::release,
          at::kCPU};
}

void SharedRegion::forget_writes() const noexcept { mappings_->forget_writes(); }

std::int64_t SharedRegion::num_handed_out() const noexcept { return mappings_->num_handed_out; }

at::Tensor shared_memory_of(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || !tensor.has_storage()) return tensor;
  const auto* const mappings = SharedRegion::Mappings::of(tensor.storage().data_ptr());
  if (mappings == nullptr) return tensor;
  ++mappings->num_handed_out;
  mappings->forget_writes();
  const auto offset =
      static_cast<const std::byte*>(tensor.const_data_ptr()) - mappings->view_start();
  return at::from_blob(mappings->shared_start() + offset, tensor.sizes(), tensor.strides(),
                       tensor.options());
}

}  // namespace lockstep
