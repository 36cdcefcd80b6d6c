// One base seed for everything random in a run. Before each step the generators are set from (seed,
// step, leaf), so that what a step draws depends on nothing that happened before it: a run that was
// stopped and goes on draws what the unbroken one draws, and no generator's state needs saving.
//
// Words: a leaf is a part of the global batch with random numbers of its own; for now each rank is
// one. Shared means that all ranks draw the same.
//
//   const Seeds seeds(7, {.leaf = world.rank()});
//   seeds.begin_shared("init");  Net net;        // equal weights on all ranks
//   for (…) { seeds.begin_step(step); … }        // dropout differs from rank to rank
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

/// A value. Offers what a checkpoint saves.
class Seeds {
 public:
  /// Throws UsageError for a negative leaf.
  explicit Seeds(std::uint64_t seed, SeedsOptions options = {});

  /// Sets LibTorch's default generators, of the CPU and of CUDA devices where there are any, for
  /// this leaf's part of `step`. They belong to the process: one thread draws at a time.
  void begin_step(std::int64_t step) const;
  /// Sets them to what all ranks share under this `purpose`: the same weights, say. Another word,
  /// or another step, is another stream.
  void begin_shared(std::string_view purpose, std::int64_t step = 0) const;

  /// A CPU generator of its own with numbers that all ranks share, to draw from at any time: which
  /// layers to drop in this step, say.
  [[nodiscard]] at::Generator shared_generator(std::string_view purpose,
                                               std::int64_t step = 0) const;
  /// The same without LibTorch.
  [[nodiscard]] RandomStream shared_stream(std::string_view purpose, std::int64_t step = 0) const;

  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] std::int64_t leaf() const noexcept { return leaf_; }

  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> named_tensors() const { return {}; }
  /// The seed; the leaf is this rank's own affair.
  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError when the run was saved with another seed: it would not go on, but begin
  /// anew.
  void load_state_json(std::string_view json);

 private:
  std::uint64_t seed_;
  std::int64_t leaf_;
};

/// LibTorch's deterministic algorithms until the end of the block: an operator that has none
/// throws. They are LibTorch's switches and hold for the process; so does this scope. On the CPU
/// most operators are deterministic without it, for a fixed number of threads.
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
