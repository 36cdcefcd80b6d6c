// A snapshot of tensors in memory, as files to be written. A training step waits only for this
// copy; of tensors on a GPU, only for a copy within device memory. The memory is touched in advance
// and reused by every save.
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

class DeviceSnapshot;

/// Not thread-safe.
class Staging {
 public:
  Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// Allocates and touches memory for `files`, so that the next stage() of this size only copies.
  /// If the memory grows, files that were staged before are invalid. Throws SystemError.
  void reserve(std::span<const FileToStage> files);

  /// Copies `files` into the staging memory, over those staged before. When it returns, the tensors
  /// may change; on a GPU, by work that the current stream gets afterwards. The data of the result
  /// is valid after arrive(). Throws UsageError for an unsupported tensor, SystemError if memory is
  /// exhausted.
  [[nodiscard]] std::vector<StagedFile> stage(std::span<const FileToStage> files);
  /// Returns when the data of the staged files is complete: waits for copies from a GPU.
  void arrive();

  /// A sentence for the user if device memory was not sufficient for a copy within it, so that
  /// stage() waited for the copy to the host; only once, else empty.
  [[nodiscard]] std::string take_remark();

  [[nodiscard]] std::size_t capacity() const noexcept { return memory_.size(); }

 private:
  void grow(std::size_t bytes);

  std::span<std::byte> memory_;             // a mapping, owned
  std::unique_ptr<DeviceSnapshot> device_;  // null without tensors on a GPU
  std::string remark_;
  bool remarked_ = false;
};

}  // namespace lockstep
