#include "lockstep/checkpoint/staging.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/device_snapshot_internal.h"
#include "lockstep/checkpoint/file_pieces_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;

// The first memory offset from `offset` on that is aligned as `position` is in its file.
constexpr std::size_t aligned_as(std::uint64_t position, std::size_t offset) {
  return offset + (position % kAlignment + kAlignment - offset % kAlignment) % kAlignment;
}

void copy(const at::Tensor& tensor, std::byte* to) {
  if (tensor.numel() == 0) return;
  if (tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    return;
  }
  at::from_blob(to, tensor.sizes(), tensor.options().device(at::kCPU).requires_grad(false))
      .copy_(tensor);
}

// Where all bytes are in the staging memory.
struct StagingPlan {
  struct StagedPiece {
    TensorPiece piece;
    std::size_t offset;  // in the memory
  };
  struct Extent {
    std::uint64_t position;  // in the file
    std::size_t offset;      // in the memory
    std::size_t bytes;
  };
  struct File {
    std::vector<std::byte> head;
    std::uint64_t bytes;
    std::vector<Extent> extents;
  };
  std::vector<StagedPiece> pieces = {};
  std::vector<File> files = {};
  std::size_t bytes = 0;

  // Appends `count` bytes at `position` of the last file; returns their offset.
  std::size_t append(std::uint64_t position, std::size_t count) {
    auto& extents = files.back().extents;
    if (extents.empty() || extents.back().position + extents.back().bytes != position) {
      bytes = aligned_as(position, bytes);
      extents.push_back({position, bytes, 0});
    }
    extents.back().bytes += count;
    return std::exchange(bytes, bytes + count);
  }
};

StagingPlan plan_of(std::span<const FileToStage> files) {
  StagingPlan plan;
  for (const auto& file : files) {
    auto [head, file_bytes, pieces] = pieces_of(file);
    plan.files.push_back({std::move(head), file_bytes, {}});
    if (file.rank == 0) (void)plan.append(0, plan.files.back().head.size());
    for (auto& piece : pieces) {
      const auto offset = plan.append(piece.position, piece.bytes());
      plan.pieces.push_back({std::move(piece), offset});
    }
  }
  return plan;
}

// The pieces on a GPU; if there are several, those on the first.
std::vector<DeviceSnapshot::Piece> pieces_on_device(const StagingPlan& plan, std::byte* memory) {
  std::vector<DeviceSnapshot::Piece> pieces;
  for (const auto& [piece, offset] : plan.pieces) {
    if (!piece.tensor.is_cuda()) continue;
    if (pieces.empty() || piece.tensor.device() == pieces.front().tensor.device()) {
      pieces.push_back({piece.values(), memory + offset});
    }
  }
  return pieces;
}

}  // namespace

Staging::Staging() = default;

Staging::~Staging() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

void Staging::grow(std::size_t bytes) {
  if (bytes <= memory_.size()) return;
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
  memory_ = {};
  auto* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw SystemError(fmt::format("cannot allocate {} bytes for the copy of a checkpoint", bytes),
                      errno);
  }
  memory_ = {static_cast<std::byte*>(memory), bytes};
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults, if supported
  std::memset(memory, 0, bytes);
}

void Staging::reserve(std::span<const FileToStage> files) {
  const auto plan = plan_of(files);
  grow(plan.bytes);
  const auto pieces = pieces_on_device(plan, memory_.data());
  if (pieces.empty()) return;
  if (!device_) device_ = std::make_unique<DeviceSnapshot>();
  device_->reserve(pieces);
}

std::vector<FileToWrite> Staging::stage(std::span<const FileToStage> files) {
  const at::NoGradGuard no_grad;
  const auto plan = plan_of(files);
  grow(plan.bytes);
  const auto pieces = pieces_on_device(plan, memory_.data());
  if (!pieces.empty() && !device_) device_ = std::make_unique<DeviceSnapshot>();
  if (device_ && !device_->copy(pieces) && !std::exchange(remarked_, true)) {
    remark_ = fmt::format(
        "the GPU has no {} MiB free for a copy of the checkpoint, so each save waits until the "
        "state is on the host; use a smaller batch to avoid this wait",
        (device_->bytes() >> 20) + 1);
  }
  for (const auto& [piece, offset] : plan.pieces) {
    const bool taken = !pieces.empty() && piece.tensor.device() == pieces.front().tensor.device();
    if (!taken) copy(piece.values(), memory_.data() + offset);
  }
  std::vector<FileToWrite> staged;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [head, bytes, extents] = plan.files[i];
    if (extents.empty()) continue;
    if (!head.empty()) std::ranges::copy(head, memory_.data() + extents.front().offset);
    staged.push_back({.name = files[i].name, .bytes = bytes, .is_shared = files[i].num_ranks > 1});
    for (const auto& [position, offset, count] : extents) {
      staged.back().extents.push_back({position, memory_.subspan(offset, count)});
    }
  }
  return staged;
}

void Staging::arrive() {
  if (device_) device_->fetch();
}

std::string Staging::take_remark() { return std::exchange(remark_, {}); }

}  // namespace lockstep
