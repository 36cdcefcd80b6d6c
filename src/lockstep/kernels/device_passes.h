// Passes over device memory (CUDA): the twins of adam_pass.h, sgd_pass.h, noted_loops.h, squares.h
// and digest.h. They compute each element with the same function and add in the same order, so that
// results are bit-identical to those of host memory. NaN payloads are the exception.
//
// Every function enqueues its work on a stream and returns; none waits for the device. All pointers
// are to device memory unless stated otherwise, and the memory must stay valid until the work has
// run. Each throws SystemError when CUDA refuses the launch, and UsageError where lockstep was
// built without CUDA.
//
// A result of one pass that another pass needs stays in device memory: the norm of the gradients,
// the skip flag and the step counts of an optimizer, the scale of a GradScaler. So the host never
// waits, and a captured CUDA graph reads the numbers of each replay.
//
// Words: a chunk is a run of neighboring elements that are treated alike. A table of chunks in
// device memory lets one launch serve all parameters of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/kernels/adam_pass.h"
#include "lockstep/kernels/sgd_pass.h"

namespace lockstep {

/// A cudaStream_t, opaque to files that include no CUDA header. Null is the default stream.
struct DeviceStream {
  void* handle = nullptr;
};

/// Elements [begin, begin + count) of an array. An optimizer's state of them, which may be that of
/// some elements only, is at [packed_begin, packed_begin + count).
struct DeviceChunk {
  std::uint64_t begin = 0;
  std::uint64_t packed_begin = 0;
  std::uint32_t count = 0;
  std::uint32_t group = 0;  // whose constants apply
};

struct DeviceChunks {
  const DeviceChunk* table = nullptr;
  std::size_t size = 0;
};

/// The number of elements of a chunk with which the elementwise passes are fastest.
constexpr std::uint32_t kDeviceChunk = 2048;

/// What the constants of a parameter's next step depend on.
struct DeviceGroup {
  double lr_factor = 1;
  double weight_decay = 0;
};

/// The inputs of one optimizer step. Pointers may be null.
struct DeviceStepInputs {
  double lr = 0;
  const double* lr_cell = nullptr;      // if not null, *lr_cell is the lr
  const std::uint32_t* skip = nullptr;  // if not null and *skip is not 0, nothing changes
};

/// The parameters of one segment that make a step, and what a step needs to know of each parameter:
/// all arrays but `present` have one element per parameter of the segment.
template <typename Step>
struct DeviceParameters {
  const std::uint32_t* present = nullptr;  // indices of the parameters that make the step
  std::size_t num_present = 0;
  const DeviceGroup* groups = nullptr;
  std::int64_t* counts = nullptr;  // number of steps made; increased by one
  Step* steps = nullptr;           // receives the constants
};

/// Counts a step of every present parameter and computes its constants, as adam_step() and
/// sgd_step() do on the host.
void launch_steps(const AdamRule& rule, const DeviceParameters<AdamStep>& parameters,
                  const DeviceStepInputs& inputs, DeviceStream stream);
void launch_steps(const SgdRule& rule, const DeviceParameters<SgdStep>& parameters,
                  const DeviceStepInputs& inputs, DeviceStream stream);

/// One step of Adam or AdamW on all `chunks` of `arrays`. `steps` holds the constants of each
/// group. `skip` is that of DeviceStepInputs. `Stored` is float, double or BFloat16.
template <typename Stored>
void launch_adam(const AdamStretch<Stored>& arrays, DeviceChunks chunks, const AdamStep* steps,
                 const std::uint32_t* skip, DeviceStream stream);

/// The same for SGD.
template <typename Stored>
void launch_sgd(const SgdStretch<Stored>& arrays, DeviceChunks chunks, const SgdStep* steps,
                const std::uint32_t* skip, DeviceStream stream);

/// The norm of gradients, and the factor that clips it.
struct DeviceNorm {
  double total = 0;        // the sum of the squares
  double norm = 0;         // its root
  double clip_factor = 1;  // max_norm / (norm + 1e-6); gradients change unless it is at least 1
};

/// Adds the sums of cells as total_of_cells() of squares.h. `runs` is memory for the sums of
/// num_runs(cells.size()) runs. `cells` refers to device memory.
void launch_norm(std::span<const double> cells, double* runs, double max_norm, DeviceNorm* result,
                 DeviceStream stream);

/// Elements [begin, end) of a segment that belong to a parameter; those between are padding.
struct DeviceSlot {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// All slots of a segment, in ascending order.
struct DeviceSlots {
  const DeviceSlot* table = nullptr;
  std::size_t size = 0;
  std::uint32_t width = 1;  // values per element of the table: 2 for complex numbers
};

/// The cell of slot i in block b of a segment has key i + b; its sum belongs to
/// sums[i + b - first_key].
struct DeviceCells {
  std::uint64_t first_key = 0;
  double* sums = nullptr;
  std::size_t size = 0;
};

/// Sums the squares of each cell of `cells`, as squares.h. A cell is the part of a slot in one
/// block of kCellElements<Stored> values of the segment. `values` are those of the segment from
/// `begin` on. A sum is not written if its cell does not exist or has no element among `values`.
/// `Stored` is float, double, Float16 or BFloat16, not only the types of optimizers.
template <typename Stored>
void launch_cells(const Stored* values, std::size_t begin, std::size_t count, DeviceSlots slots,
                  const DeviceCells& cells, DeviceStream stream);

/// Multiplies elements [begin, end) of a segment by norm->clip_factor, unless it is at least 1.
/// `values` are those from `begin` on. Padding does not change. `Stored` is float, double, Float16
/// or BFloat16, here and below.
template <typename Stored>
void launch_clip(Stored* values, std::size_t begin, std::size_t end, DeviceSlots slots,
                 const DeviceNorm* norm, DeviceStream stream);

/// Sets *found to 1 if one of `count` values is non-finite; leaves it as it is otherwise.
template <typename Stored>
void launch_find_non_finite(const Stored* values, std::size_t count, std::uint32_t* found,
                            DeviceStream stream);

/// The state of a GradScaler.
struct DeviceScaler {
  float scale = 1;
  std::uint32_t found = 0;   // a gradient of this step is non-finite
  std::int64_t growing = 0;  // finite steps since the scale last changed
  std::int64_t skipped = 0;  // steps
};

/// Divides `count` values by the scale, as GradScaler::unscale() on the host; sets scaler->found if
/// one was non-finite.
template <typename Stored>
void launch_unscale(Stored* values, std::size_t count, DeviceScaler* scaler, DeviceStream stream);

/// Ends a step: changes the scale as GradScaler::update() on the host, and resets `found`.
void launch_scaler_update(DeviceScaler* scaler, double growth_factor, double backoff_factor,
                          std::int64_t growth_interval, DeviceStream stream);

/// A gradient that launch_gather writes to its slot. Both are dense, of the same dtype and strides.
struct GatheredGradient {
  const void* from = nullptr;
  void* to = nullptr;
  std::uint32_t count = 0;  // elements
  std::uint32_t parameter = 0;
  bool adds = false;  // add to what is in the slot
};

/// The largest number of gradients of one launch: their table is an argument of the kernel.
constexpr std::size_t kMostGathered = 1000;

/// Copies or adds all `gradients`, a table in host memory. Sets non_finite[parameter] to 1 where a
/// value that was written is non-finite; leaves it as it is otherwise.
template <typename Stored>
void launch_gather(std::span<const GatheredGradient> gradients, std::uint32_t* non_finite,
                   DeviceStream stream);

/// Adds the digest of `bytes` bytes at byte `position` of the whole to *sum (digest.h). `position`
/// and the address of `memory` are multiples of 8.
void launch_digest(const std::byte* memory, std::size_t bytes, std::uint64_t position,
                   std::uint64_t* sum, DeviceStream stream);

/// Whether work enqueued on `stream` becomes part of a CUDA graph instead of running.
[[nodiscard]] bool is_capturing(DeviceStream stream);

}  // namespace lockstep
