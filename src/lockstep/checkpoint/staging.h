// Tensors of one moment as files to be written, in memory of our own: all that a training step
// waits for is this copy. The memory is touched before it is needed and used again for every save.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/tracked.h"

namespace lockstep {

/// A safetensors file to be.
struct FileToStage {
  std::string name;
  NamedTensors tensors;
};

/// One that is staged. Its bytes are `head`, then `data`.
struct StagedFile {
  std::string name;
  std::vector<std::byte> head;
  std::span<const std::byte> data;  // in the Staging
};

/// Not for several threads at once.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  /// Makes room, with every page there already, so that the next stage() of as much only copies.
  /// What was staged before is lost when the memory has to grow. Throws SystemError.
  void reserve(std::size_t bytes);

  /// Copies `files` here, over what was staged before. The tensors can be changed as soon as it
  /// returns. Throws UsageError for a tensor that no file can hold, SystemError without memory.
  [[nodiscard]] std::vector<StagedFile> stage(std::span<const FileToStage> files);

  [[nodiscard]] std::size_t capacity() const noexcept { return memory_.size(); }

 private:
  std::span<std::byte> memory_;  // a mapping, owned
};

/// How many bytes of data `files` take.
[[nodiscard]] std::size_t staged_bytes(std::span<const FileToStage> files);

}  // namespace lockstep
