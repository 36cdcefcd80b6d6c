#include "lockstep/flat/host_copies.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/kernels/copy_pass.h"

namespace lockstep {
namespace {

// A tensor whose memory can be replaced, for all views of it at once.
at::Tensor over(at::DataPtr memory, const Segment& segment, std::int64_t bytes) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       std::move(memory), /*allocator=*/nullptr,
                                                       /*resizable=*/false);
  return at::empty({0}, at::dtype(segment.dtype))
      .set_(at::Storage(std::move(storage)), 0, {segment.length}, {1});
}

at::DataPtr pointer_to(const at::Tensor& memory) {
  return {memory.data_ptr(), new at::Tensor(memory),
          [](void* held) { delete static_cast<at::Tensor*>(held); }, at::kCPU};
}

void repoint(const at::Tensor& tensor, at::DataPtr memory) {
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
}

// The elements [begin, begin + count).
std::byte* start_of(const at::Tensor& segment, std::int64_t begin) {
  return static_cast<std::byte*>(segment.data_ptr()) +
         begin * static_cast<std::int64_t>(segment.element_size());
}

}  // namespace

HostCopies::HostCopies(const ProcessGroup& group, const Layout& layout) : group_(group) {
  for (const auto& segment : layout.segments) {
    if (!segment.device.is_cpu()) {
      throw UsageError(
          fmt::format("Copies::per_host is for parameters on the CPU, and some are on {}: use "
                      "Copies::per_rank",
                      segment.device.str()));
    }
    const auto bytes = segment.length * static_cast<std::int64_t>(c10::elementSize(segment.dtype));
    std::array<SharedRegion, 2> regions{group.allocate_shared(bytes), group.allocate_shared(bytes)};
    auto values = over(regions[0].view(), segment, bytes);
    auto next = over(pointer_to(regions[1].shared()), segment, bytes);
    copies_.push_back({std::move(regions), std::move(values), std::move(next)});
  }
}

at::Tensor HostCopies::shared(int segment) const {
  return of(segment).regions[in_use_].shared().view(of(segment).values.scalar_type());
}

std::int64_t HostCopies::num_handed_out() const noexcept {
  std::int64_t all = 0;
  for (const auto& each : copies_) all += each.regions[in_use_].num_handed_out();
  return all;
}

void HostCopies::copy_own(const Shards& shards) const {
  for (int i = 0; i < static_cast<int>(copies_.size()); ++i) {
    const auto from = shared(i);
    for (const auto& run : shards.runs(i)) {
      const auto bytes = static_cast<std::size_t>(run.count) * from.element_size();
      copy_past({start_of(next(i), run.begin), bytes}, start_of(from, run.begin));
    }
  }
}

bool HostCopies::next_has_own(const Shards& shards) const {
  for (int i = 0; i < static_cast<int>(copies_.size()); ++i) {
    const auto now = shared(i);
    for (const auto& run : shards.runs(i)) {
      if (std::memcmp(start_of(next(i), run.begin), start_of(now, run.begin),
                      static_cast<std::size_t>(run.count) * now.element_size()) != 0) {
        return false;
      }
    }
  }
  return true;
}

void HostCopies::update(const Shards& shards,
                        const std::function<bool(int segment, const Shards::Part& part)>& update) {
  for (int i = 0; i < static_cast<int>(copies_.size()); ++i) {
    for (const auto& part : shards.parts(i)) update(i, part);
  }
  switch_over();
}

void HostCopies::switch_over() {
  group_.barrier({.name = "new parameters"}).wait();
  in_use_ = 1 - in_use_;
  allow_writes(false);
}

void HostCopies::forget_writes() const noexcept {
  for (const auto& each : copies_) {
    for (const auto& region : each.regions) region.forget_writes();
  }
}

void HostCopies::allow_writes(bool allowed) {
  for (auto& [regions, values, next] : copies_) {
    auto& now = regions[in_use_];
    repoint(values, allowed ? pointer_to(now.shared()) : now.view());
    repoint(next, pointer_to(regions[1 - in_use_].shared()));
  }
}

}  // namespace lockstep
