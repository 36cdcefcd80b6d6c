// One base seed for all random numbers of a run. Before each step the generators are set from
// (seed, step, leaf), so the numbers of a step do not depend on earlier steps: a resumed run draws
// the same numbers as an uninterrupted one, and needs no saved generator state.
//
// Words: a *leaf* is a part of the global batch with random numbers of its own; at present each
// rank is one leaf. *Shared* numbers are equal on all ranks.
//
//   const Seeds seeds(7, {.leaf = world.rank()});
//   seeds.begin_shared("init");
//   Net net;                                      // equal weights on all ranks
//   for (std::int64_t step = 0; step < steps; ++step) {
//     seeds.begin_step(step);                     // dropout differs between ranks
//     …
//   }
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep {

struct SeedsOptions {
  std::int64_t leaf = 0;  // this rank
};

/// A value. A checkpoint saves it by state_json().
class Seeds {
 public:
  /// Throws UsageError for a negative leaf.
  explicit Seeds(std::uint64_t seed, SeedsOptions options = {});

  /// Sets LibTorch's default generators, of the CPU and of all CUDA devices, for this leaf and
  /// `step`. They belong to the process: only one thread may draw at a time.
  /// Throws UsageError for a negative step.
  void begin_step(std::int64_t step) const;
  /// Sets them to a stream that all ranks share, for example for equal initial weights. Each
  /// `purpose` and step has a stream of its own.
  void begin_shared(std::string_view purpose, std::int64_t step = 0) const;

  /// A separate CPU generator with numbers that all ranks share, for example to choose the layers
  /// to drop in this step.
  [[nodiscard]] at::Generator shared_generator(std::string_view purpose,
                                               std::int64_t step = 0) const;
  /// The same without LibTorch.
  [[nodiscard]] RandomStream shared_stream(std::string_view purpose, std::int64_t step = 0) const;

  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] std::int64_t leaf() const noexcept { return leaf_; }

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const { return {}; }
  /// The seed; the leaf is not saved, because it is each rank's own.
  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError when the run was saved with another seed, or for invalid JSON.
  void load_state_json(std::string_view json);

 private:
  std::uint64_t seed_;
  std::int64_t leaf_;
};

/// Turns on LibTorch's deterministic algorithms until the end of the scope: an operator without one
/// throws. These are LibTorch's global settings, so the scope applies to the whole process. On the
/// CPU most operators are deterministic without it, for a fixed number of threads.
///
/// On a GPU, make it before the first CUDA tensor: matrix products also need the environment
/// variable CUBLAS_WORKSPACE_CONFIG, which is read once. If it is not set, the scope sets it for
/// this process; if CUDA is in use already, or the variable has another value, the constructor
/// throws UsageError with the value to set.
class Deterministic {
 public:
  Deterministic();
  ~Deterministic();
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  bool algorithms_;
  bool warn_only_;
  bool cudnn_;
  bool benchmark_;
};

}  // namespace lockstep
