// Gradients as 8-bit integers with error feedback: a quarter of the traffic of float32.
//
//   lockstep::Int8Compression int8;
//   ddp.set_hook(int8.hook());
//   run.track("compression", int8);   // if the loop saves checkpoints
//
// Each rank divides a bucket into one shard per rank, encodes the shards of the other ranks
// (kernels/int8_blocks.h: blocks of 256 values with a scale) and sends them to their owners. The
// owner adds the shards in float32 in the fixed order of ranks, encodes the average and sends it to
// all ranks. So the traffic per rank does not grow with the number of ranks, and the result is
// bit-identical on all ranks.
//
// What rounding loses is kept in float32 and added to the gradients of the next step: on every rank
// the error of what it sent, and on the owner of a shard the error of the average, in its own
// error. The state is one value per parameter element and rank (two in memory). It changes only if
// the step succeeds.
//
// Buckets of float64, and buckets so small that scales would outweigh the gain, are reduced without
// compression. 16-bit gradients are encoded from float32 copies. With one rank nothing is encoded.
// A block with a non-finite value is NaN on all ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/ddp/gradient_hook.h"

namespace lockstep {

/// One object per Ddp. Copies share the state.
class Int8Compression {
 public:
  Int8Compression();

  /// For Ddp::set_hook(). It shares the state and may outlive this object.
  [[nodiscard]] GradientHook hook() const;

  // The state, as a tracked object of a checkpoint (checkpoint/tracked.h): each rank's error by
  // parameter. Between steps only.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> rank_tensors() const;
  [[nodiscard]] std::string state_json() const;
  /// Throws UsageError if `json` is not the state of this class.
  void load_state_json(std::string_view json);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep
