#include "lockstep/checkpoint/staging.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/device_snapshot_internal.h"
#include "lockstep/checkpoint/safetensors_layout.h"
#include "lockstep/checkpoint/tensor_entry_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kAlignment = 64;  // of each file's data

constexpr std::size_t round_up(std::size_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

SafetensorsLayout layout_of(const FileToStage& file) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : file.tensors) entries.push_back(entry_of(name, tensor));
  return lay_out_safetensors(entries);
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

struct LaidOut {
  std::vector<SafetensorsLayout> layouts = {};  // of each file
  std::vector<std::size_t> begins = {};         // of each file's data
  std::size_t bytes = 0;
};

LaidOut lay_out(std::span<const FileToStage> files) {
  LaidOut all;
  for (const auto& file : files) {
    all.layouts.push_back(layout_of(file));
    all.begins.push_back(all.bytes);
    all.bytes += round_up(all.layouts.back().data_bytes);
  }
  return all;
}

// Calls visit(tensor, place) for every tensor of `files`, whose data begins at `memory`.
template <typename Visit>
void for_each_tensor(std::span<const FileToStage> files, const LaidOut& all, std::byte* memory,
                     const Visit& visit) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& layout = all.layouts[i];
    for (std::size_t t = 0; t < layout.entries.size(); ++t) {
      visit(files[i].tensors[layout.sources[t]].second,
            memory + all.begins[i] + layout.entries[t].begin);
    }
  }
}

// The tensors on a GPU; if there are several, those on the first.
std::vector<DeviceSnapshot::Piece> pieces_on_device(std::span<const FileToStage> files,
                                                    const LaidOut& all, std::byte* memory) {
  std::vector<DeviceSnapshot::Piece> pieces;
  for_each_tensor(files, all, memory, [&](const at::Tensor& tensor, std::byte* to) {
    if (!tensor.is_cuda() || tensor.numel() == 0) return;
    if (pieces.empty() || tensor.device() == pieces.front().tensor.device()) {
      pieces.push_back({tensor, to});
    }
  });
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
  const auto all = lay_out(files);
  grow(all.bytes);
  const auto pieces = pieces_on_device(files, all, memory_.data());
  if (pieces.empty()) return;
  if (!device_) device_ = std::make_unique<DeviceSnapshot>();
  device_->reserve(pieces);
}

std::vector<StagedFile> Staging::stage(std::span<const FileToStage> files) {
  const at::NoGradGuard no_grad;
  auto all = lay_out(files);
  grow(all.bytes);
  const auto pieces = pieces_on_device(files, all, memory_.data());
  if (!pieces.empty() && !device_) device_ = std::make_unique<DeviceSnapshot>();
  if (device_ && !device_->take(pieces) && !std::exchange(remarked_, true)) {
    remark_ = fmt::format(
        "the GPU has no {} MiB free for a copy of the checkpoint, so each save waits until the "
        "state is on the host; use a smaller batch to avoid this wait",
        (device_->bytes() >> 20) + 1);
  }
  for_each_tensor(files, all, memory_.data(), [&](const at::Tensor& tensor, std::byte* to) {
    const bool taken = !pieces.empty() && tensor.device() == pieces.front().tensor.device();
    if (!taken) copy(tensor, to);
  });
  std::vector<StagedFile> staged;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& layout = all.layouts[i];
    staged.push_back(
        {files[i].name, std::move(layout.head), memory_.subspan(all.begins[i], layout.data_bytes)});
  }
  return staged;
}

void Staging::arrive() {
  if (device_) device_->fetch();
}

std::string Staging::take_remark() { return std::exchange(remark_, {}); }

}  // namespace lockstep
