#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/checkpoint/device_snapshot_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 512;                  // of ranges in the snapshot
constexpr std::int64_t kChunk = std::int64_t{32} << 20;  // bytes of a pinned buffer
constexpr auto kBytes = at::kByte;

std::int64_t signed_of(std::size_t value) { return static_cast<std::int64_t>(value); }

std::size_t address_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::size_t>(tensor.const_data_ptr());
}

// `bytes` bytes from the beginning of `tensor`, possibly beyond its end, in the same storage.
at::Tensor memory_from(const at::Tensor& tensor, std::size_t bytes) {
  const auto* const base = static_cast<const std::byte*>(tensor.storage().data());
  const auto* const begin = static_cast<const std::byte*>(tensor.const_data_ptr());
  auto memory = at::empty({0}, tensor.options().dtype(kBytes).requires_grad(false));
  return memory.set_(tensor.storage(), begin - base, {signed_of(bytes)}, {1});
}

}  // namespace

CopyPlan plan_copies(std::span<const MemoryPart> parts) {
  CopyPlan plan;
  plan.offsets.resize(parts.size());
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      return std::tuple(reinterpret_cast<std::size_t>(parts[i].storage), parts[i].begin, i);
    };
    return key(a) < key(b);
  });
  for (const auto index : order) {
    const auto& part = parts[index];
    if (!plan.ranges.empty()) {
      auto& range = plan.ranges.back();
      const auto& first = parts[range.first];
      const auto within = part.begin - first.begin;
      if (first.storage == part.storage && within <= range.bytes + kLargestGap) {
        range.bytes = std::max(range.bytes, within + part.bytes);
        plan.offsets[index] = range.offset + within;
        plan.total = range.offset + range.bytes;
        continue;
      }
    }
    const auto offset = (plan.total + kAlignment - 1) / kAlignment * kAlignment;
    plan.ranges.push_back({index, part.bytes, offset});
    plan.offsets[index] = offset;
    plan.total = offset + part.bytes;
  }
  return plan;
}

void DeviceSnapshot::plan(std::span<const Piece> pieces) {
  tensors_.clear();
  std::vector<MemoryPart> parts;
  for (const auto& [tensor, to] : pieces) {
    tensors_.push_back(tensor.resolve_conj().resolve_neg().contiguous());
    const auto& dense = tensors_.back();
    parts.push_back({dense.storage().unsafeGetStorageImpl(), address_of(dense), dense.nbytes()});
  }
  plan_ = plan_copies(parts);
}

// LibTorch frees its cached memory before it reports that memory is exhausted, which waits for the
// device. So a size that was refused is not requested again.
bool DeviceSnapshot::has_room(at::Device device) {
  const auto wanted = signed_of(plan_.total);
  if (snapshot_.defined() && snapshot_.device() == device && snapshot_.numel() >= wanted)
    return true;
  if (refused_bytes_ != 0 && plan_.total >= refused_bytes_) return false;
  snapshot_.reset();
  try {
    snapshot_ = at::empty({wanted}, at::device(device).dtype(kBytes));
  } catch (const c10::OutOfMemoryError&) {
    refused_bytes_ = plan_.total;
    return false;
  }
  return true;
}

void DeviceSnapshot::prepare_pinned(at::Device device) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  if (!copies_ || copies_->device() != device) copies_ = streams.getStreamFromGlobalPool(device);
  for (auto& buffer : pinned_) {
    if (!buffer.defined()) {
      buffer = at::empty({kChunk}, at::TensorOptions(kBytes).pinned_memory(true));
    }
  }
}

void DeviceSnapshot::reserve(std::span<const Piece> pieces) {
  if (pieces.empty()) return;
  const at::NoGradGuard no_grad;
  const auto device = pieces.front().tensor.device();
  plan(pieces);
  tensors_.clear();
  prepare_pinned(device);
  (void)has_room(device);
}

bool DeviceSnapshot::copy(std::span<const Piece> pieces) {
  pending_.clear();
  if (pieces.empty()) return true;
  const at::NoGradGuard no_grad;
  const auto device = pieces.front().tensor.device();
  const c10::DeviceGuard on_device(device);
  const c10::impl::VirtualGuardImpl streams(device.type());
  const auto current = streams.getStream(device);
  plan(pieces);
  prepare_pinned(device);
  const bool snapshot = has_room(device);
  if (snapshot) pending_.push_back({snapshot_.narrow(0, 0, signed_of(plan_.total)), {}});
  for (const auto& range : plan_.ranges) {
    auto memory = memory_from(tensors_[range.first], range.bytes);
    if (!snapshot) {
      pending_.push_back({std::move(memory), {}});
    } else if (range.bytes > 0) {
      snapshot_.narrow(0, signed_of(range.offset), signed_of(range.bytes)).copy_(memory);
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto offset = plan_.offsets[i];
    const auto after = std::ranges::upper_bound(plan_.ranges, offset, {}, &CopyRange::offset);
    const auto range = static_cast<std::size_t>(after - plan_.ranges.begin()) - 1;
    auto& source = pending_[snapshot ? 0 : range];
    source.copies.push_back({snapshot ? offset : offset - plan_.ranges[range].offset,
                             tensors_[i].nbytes(), pieces[i].to});
  }
  for (auto& source : pending_) std::ranges::sort(source.copies, {}, &PieceCopy::offset);
  taken_.emplace(device.type());
  taken_->record(current);
  if (!snapshot) fetch();
  tensors_.clear();
  return snapshot;
}

void DeviceSnapshot::fetch() {
  if (pending_.empty()) return;
  const at::NoGradGuard no_grad;
  const c10::StreamGuard on_copies(*copies_);
  taken_->block(*copies_);
  for (const auto& source : pending_) copy_out(source);
  pending_.clear();
}

// While one pinned buffer is distributed to the host memory, the other is filled.
void DeviceSnapshot::copy_out(const Source& source) {
  const auto total = source.memory.numel();
  const auto num_chunks = (total + kChunk - 1) / kChunk;
  std::array<c10::Event, 2> arrived{c10::Event(copies_->device_type()),
                                    c10::Event(copies_->device_type())};
  const auto start = [&](std::int64_t chunk) {
    const auto begin = chunk * kChunk;
    const auto count = std::min(kChunk, total - begin);
    const auto which = static_cast<std::size_t>(chunk % 2);
    pinned_[which].narrow(0, 0, count).copy_(source.memory.narrow(0, begin, count), true);
    arrived[which].record(*copies_);
  };
  std::size_t next = 0;  // the first copy that the chunks so far do not complete
  if (num_chunks > 0) start(0);
  for (std::int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    if (chunk + 1 < num_chunks) start(chunk + 1);
    const auto which = static_cast<std::size_t>(chunk % 2);
    arrived[which].synchronize();
    const auto* const from = static_cast<const std::byte*>(pinned_[which].const_data_ptr());
    const auto begin = static_cast<std::size_t>(chunk * kChunk);
    const auto end = begin + static_cast<std::size_t>(std::min(kChunk, total - chunk * kChunk));
    for (auto i = next; i < source.copies.size() && source.copies[i].offset < end; ++i) {
      const auto& each = source.copies[i];
      const auto low = std::max(begin, each.offset);
      const auto high = std::min(end, each.offset + each.bytes);
      if (low < high) std::memcpy(each.to + (low - each.offset), from + (low - begin), high - low);
      if (i == next && each.offset + each.bytes <= end) ++next;
    }
  }
}

}  // namespace lockstep
