// The collective calls of a reduction, as a strategy: Reducer decides when a bucket is reduced and
// what its flags are, a BucketReduction how. All-reduce is the default. A scripted one lets tests
// run a Reducer in one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// The reduction of one bucket, under way. Functions throw PeerError as Work does.
class BucketWork {
 public:
  BucketWork() = default;
  BucketWork(const BucketWork&) = delete;
  BucketWork& operator=(const BucketWork&) = delete;
  virtual ~BucketWork() = default;

  /// Continues with what can be done without waiting.
  virtual void advance() = 0;
  /// Returns when the bucket holds the average.
  virtual void wait() = 0;
  /// The flags of all ranks. The work is done.
  [[nodiscard]] virtual const GroupFlags& flags() const = 0;
};

struct BucketCall {
  std::string_view name;  // for messages; equal on all ranks
  CallFlags flags = {};
  std::int64_t weight = 0;  // of this rank in the average
};

class BucketReduction {
 public:
  BucketReduction() = default;
  BucketReduction(const BucketReduction&) = delete;
  BucketReduction& operator=(const BucketReduction&) = delete;
  virtual ~BucketReduction() = default;

  [[nodiscard]] virtual int num_ranks() const = 0;

  /// Starts to average `bucket` over the ranks by their weights, in place. Collective; the ranks
  /// start the same buckets in the same order. Returns at once; `bucket` is left alone until the
  /// BucketWork has been waited on. Throws PeerError when a rank is lost or makes another call.
  [[nodiscard]] virtual std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                          const BucketCall& call) = 0;

  /// By parameter, whether it is true on any rank. Collective. Returns when all ranks have called
  /// it; throws PeerError.
  [[nodiscard]] virtual std::vector<bool> combine_used(const std::vector<bool>& used) = 0;
};

/// Every rank gets the whole average.
[[nodiscard]] std::unique_ptr<BucketReduction> make_all_reduction(const ProcessGroup& group);

}  // namespace lockstep
