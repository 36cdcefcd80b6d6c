#include "lockstep/checkpoint/staging.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
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

}  // namespace

Staging::~Staging() {
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

void Staging::reserve(std::size_t bytes) {
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

std::vector<StagedFile> Staging::stage(std::span<const FileToStage> files) {
  const at::NoGradGuard no_grad;
  std::vector<SafetensorsLayout> layouts;
  std::size_t total = 0;
  for (const auto& file : files) {
    layouts.push_back(layout_of(file));
    total += round_up(layouts.back().data_bytes);
  }
  reserve(total);
  std::vector<StagedFile> staged;
  std::size_t at = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto& layout = layouts[i];
    for (std::size_t t = 0; t < layout.entries.size(); ++t) {
      copy(files[i].tensors[layout.sources[t]].second,
           memory_.data() + at + layout.entries[t].begin);
    }
    staged.push_back(
        {files[i].name, std::move(layout.head), memory_.subspan(at, layout.data_bytes)});
    at += round_up(layout.data_bytes);
  }
  return staged;
}

std::size_t staged_bytes(std::span<const FileToStage> files) {
  std::size_t bytes = 0;
  for (const auto& file : files) {
    std::size_t of_file = 0;
    for (const auto& [name, tensor] : file.tensors) of_file += tensor.nbytes();
    bytes += round_up(of_file);
  }
  return bytes;
}

}  // namespace lockstep
