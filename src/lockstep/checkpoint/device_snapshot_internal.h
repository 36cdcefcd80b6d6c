// Tensors of a GPU on their way to a checkpoint, in two parts:
//
// copy()   on the thread that trains: copies the tensors within device memory, in the order of the
//          current stream. The step that follows waits for this copy, the host does not.
// fetch()  on the thread that writes: copies the snapshot to the host through two small pinned
//          buffers, on a stream of its own, while training continues.
//
// Tensors that are neighbors in one storage, such as the parameters of a FlatParameters, are copied
// together, so that copy() has few launches.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Memory to copy as a whole, and its offset in the snapshot.
struct CopyRange {
  std::size_t first = 0;   // index of the member at its beginning
  std::size_t bytes = 0;   // from there
  std::size_t offset = 0;  // in the snapshot
};

struct MemoryPart {
  const void* storage = nullptr;  // parts of different storages are never copied together
  std::size_t begin = 0;          // address
  std::size_t bytes = 0;
};

struct CopyPlan {
  std::vector<CopyRange> ranges = {};
  std::vector<std::size_t> offsets = {};  // of each part, in the snapshot
  std::size_t total = 0;                  // bytes of the snapshot
};

/// Combines parts of a storage that overlap or have at most kLargestGap bytes between them. Pure.
constexpr std::size_t kLargestGap = 4096;
[[nodiscard]] CopyPlan plan_copies(std::span<const MemoryPart> parts);

/// Used by one thread at a time.
class DeviceSnapshot {
 public:
  struct Piece {
    at::Tensor tensor;  // on a GPU, the same for all pieces
    std::byte* to;      // nbytes() of host memory
  };

  /// Allocates device and pinned memory for `pieces` in advance.
  void reserve(std::span<const Piece> pieces);

  /// Copies `pieces` in device memory; the host memory is valid after fetch(). If device memory is
  /// not sufficient, copies them to the host and waits for it. Returns whether a snapshot was made.
  [[nodiscard]] bool copy(std::span<const Piece> pieces);
  /// Returns when the host memory of the last copy() is complete. Throws c10::Error if CUDA fails.
  void fetch();

  /// Bytes of device memory that the last snapshot needs, whether or not there were that many.
  [[nodiscard]] std::size_t bytes() const noexcept { return plan_.total; }

 private:
  struct PieceCopy {
    std::size_t offset = 0;  // in the source
    std::size_t bytes = 0;
    std::byte* to = nullptr;
  };
  struct Source {
    at::Tensor memory;              // bytes on the device
    std::vector<PieceCopy> copies;  // by offset
  };

  void plan(std::span<const Piece> pieces);
  [[nodiscard]] bool has_room(at::Device device);
  void prepare_pinned(at::Device device);
  void copy_out(const Source& source);

  std::vector<at::Tensor> tensors_;  // dense; during copy()
  CopyPlan plan_;
  at::Tensor snapshot_;            // kept for the next save
  std::size_t refused_bytes_ = 0;  // device memory was not sufficient for this many
  std::vector<Source> pending_;
  std::array<at::Tensor, 2> pinned_;
  std::optional<c10::Stream> copies_;
  std::optional<c10::Event> taken_;
};

}  // namespace lockstep
