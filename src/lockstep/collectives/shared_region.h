// Memory that all ranks of a host share: one copy instead of one per rank. Each rank has it mapped
// twice. What a rank writes to shared() all ranks see, in both mappings. view() is for tensors that
// programs read: a program that writes to one anyway changes its own process only, not the memory
// of the other ranks, and can be told so.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>

namespace lockstep {

class RegisteredMemory;

class SharedRegion {
 public:
  SharedRegion(std::shared_ptr<RegisteredMemory> memory, std::int64_t bytes);

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// The memory, as uint8: zeroed at first.
  [[nodiscard]] at::Tensor shared() const;
  /// A pointer to the view, for a storage of bytes(). It keeps the memory alive.
  [[nodiscard]] at::DataPtr view() const;
  /// Drops what this process has written to the view: it shows the shared memory again.
  void forget_writes() const noexcept;
  /// How often shared_memory_of() has returned a part of this memory, in this process. The
  /// caller may have written to it.
  [[nodiscard]] std::int64_t num_handed_out() const noexcept;

 private:
  struct Mappings;
  friend at::Tensor shared_memory_of(const at::Tensor& tensor);

  std::shared_ptr<Mappings> mappings_;
  std::int64_t bytes_;
};

/// If `tensor` lies in a view of a SharedRegion: the same elements of the shared memory, for the
/// caller to write. The view forgets what was written to it, so that it shows these writes.
/// Otherwise `tensor` itself.
[[nodiscard]] at::Tensor shared_memory_of(const at::Tensor& tensor);

}  // namespace lockstep
