// Passes over device memory (CUDA): the twins of adam_pass.h, sgd_pass.h, squares.h and digest.h.
// They compute each element with the same function and add in the same order, so that results are
// bit-identical to those of host memory. NaN payloads are the exception.
//
// Every function enqueues its work on a stream and returns; none waits for the device. All pointers
// are to device memory unless stated otherwise, and the memory must stay valid until the work has
// run. Each throws SystemError when CUDA refuses the launch, and UsageError where lockstep was
// built without CUDA.
//
// Words: a chunk is a run of neighboring elements that are treated alike. A table of chunks in
// device memory lets one launch serve all parameters of a model.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/kernels/adam_pass.h"
#include "lockstep/kernels/sgd_pass.h"

namespace lockstep {

/// A cudaStream_t, opaque to files that include no CUDA header. Null is the default stream.
struct DeviceStream {
  void* handle = nullptr;
};

/// Elements [begin, begin + count) of an array.
struct DeviceChunk {
  std::uint64_t begin = 0;
  std::uint32_t count = 0;
  std::uint32_t group = 0;  // whose constants apply
};

struct DeviceChunks {
  const DeviceChunk* table = nullptr;
  std::size_t size = 0;
};

/// The number of elements of a chunk with which the elementwise passes are fastest.
constexpr std::uint32_t kDeviceChunk = 2048;

/// One step of Adam or AdamW on all `chunks` of `arrays`. `steps` holds the constants of each
/// group. `Stored` is float, double or BFloat16.
template <typename Stored>
void launch_adam(const AdamStretch<Stored>& arrays, DeviceChunks chunks, const AdamStep* steps,
                 DeviceStream stream);

/// The same for SGD.
template <typename Stored>
void launch_sgd(const SgdStretch<Stored>& arrays, DeviceChunks chunks, const SgdStep* steps,
                DeviceStream stream);

/// The sums of squares of `count` values, one per block of kSquaresBlock elements: sums[i] is that
/// of block i. `Stored` is float, double, Float16 or BFloat16, not only the types of optimizers.
template <typename Stored>
void launch_squares(const Stored* values, std::size_t count, double* sums, DeviceStream stream);

/// Adds the digest of `bytes` bytes at byte `position` of the whole to *sum (digest.h). `position`
/// and the address of `memory` are multiples of 8.
void launch_digest(const std::byte* memory, std::size_t bytes, std::uint64_t position,
                   std::uint64_t* sum, DeviceStream stream);

}  // namespace lockstep
