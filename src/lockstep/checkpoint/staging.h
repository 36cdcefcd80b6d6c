// A snapshot of tensors in memory, as files to be written. A training step waits only for this
// copy; of tensors on a GPU, only for a copy within device memory. The memory is touched in advance
// and reused by every save.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/checkpoint/file_parts.h"
#include "lockstep/checkpoint/tracked.h"

namespace lockstep {

/// The contents of a safetensors file to be written, by one rank or by several together. The file
/// depends neither on the number of ranks nor on which tensors are sharded.
struct FileToStage {
  std::string name;
  NamedTensors tensors;         // equal on all ranks; each rank stages 1/num_ranks of their bytes
  NamedTensors of_rank_0 = {};  // may differ between ranks; rank 0 stages them
  ShardedTensors sharded = {};  // each rank stages its pieces
  int rank = 0;                 // of the num_ranks that write the file; rank 0 also stages the
  int num_ranks = 1;            // file's head
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

  /// Copies this rank's part of `files` into the staging memory, over those staged before. When it
  /// returns, the tensors may change; on a GPU, by work that the current stream gets afterwards.
  /// The bytes of the result are in the staging memory and valid after arrive(). A file of which
  /// this rank has no byte is left out. Throws UsageError for an unsupported tensor or an invalid
  /// piece of a sharded one, SystemError if memory is exhausted.
  [[nodiscard]] std::vector<FileToWrite> stage(std::span<const FileToStage> files);
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
