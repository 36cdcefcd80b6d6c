// A snapshot of tensors in memory, as files to be written. A training step waits only for this
// copy. The memory is touched in advance and reused by every save.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tracked.h"

namespace lockstep {

/// The contents of a safetensors file to be written.
struct FileToStage {
  std::string name;
  NamedTensors tensors;
};

/// A staged file. Its bytes are `head`, then `data`.
struct StagedFile {
  std::string name;
  std::vector<std::byte> head;
  std::span<const std::byte> data;  // in the Staging
};

/// Not thread-safe.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// Allocates and touches `bytes`, so that the next stage() of this size only copies. If the
  /// memory grows, files that were staged before are invalid. Throws SystemError.
  void reserve(std::size_t bytes);

  /// Copies `files` into the staging memory, over those staged before. When it returns, the tensors
  /// may change. Throws UsageError for an unsupported tensor, SystemError if memory is exhausted.
  [[nodiscard]] std::vector<StagedFile> stage(std::span<const FileToStage> files);

  [[nodiscard]] std::size_t capacity() const noexcept { return memory_.size(); }

 private:
  std::span<std::byte> memory_;  // a mapping, owned
};

/// The size of the staging memory that `files` need.
[[nodiscard]] std::size_t staged_bytes(std::span<const FileToStage> files);

}  // namespace lockstep
