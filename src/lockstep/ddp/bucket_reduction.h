// The collective calls of a reduction, as an interface. Reducer decides when a bucket is reduced
// and with which flags; a BucketReduction decides how. The default is all-reduce. Tests use a
// scripted one to run a Reducer in one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// The reduction of one bucket, in progress. Its functions throw PeerError as Work does.
class BucketWork {
 public:
  BucketWork() = default;
  BucketWork(const BucketWork&) = delete;
  BucketWork& operator=(const BucketWork&) = delete;
  virtual ~BucketWork() = default;

  /// Makes progress without waiting.
  virtual void advance() = 0;
  /// Returns when the bucket holds the average.
  virtual void wait() = 0;
  /// The reduced flags. Valid once wait() has returned.
  [[nodiscard]] virtual const GroupFlags& flags() const = 0;
  /// Valid once wait() has returned; zero: not measured.
  [[nodiscard]] virtual WorkTimes times() const { return {}; }
};

struct BucketCall {
  std::string_view name;  // for messages; equal on all ranks
  CallFlags flags = {};
  std::int64_t weight = 0;  // this rank's weight in the average
};

class BucketReduction {
 public:
  BucketReduction() = default;
  BucketReduction(const BucketReduction&) = delete;
  BucketReduction& operator=(const BucketReduction&) = delete;
  virtual ~BucketReduction() = default;

  [[nodiscard]] virtual int num_ranks() const = 0;

  /// Starts the weighted average of `bucket` over the ranks, in place.
  /// Collective: all ranks start the same buckets in the same order.
  /// Returns at once; do not touch `bucket` until the BucketWork has been waited on.
  /// Throws PeerError when a rank is lost or makes a different call.
  [[nodiscard]] virtual std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                          const BucketCall& call) = 0;

  /// The logical or of `used` over the ranks, by parameter.
  /// Collective. Returns when all ranks have called it. Throws PeerError.
  [[nodiscard]] virtual std::vector<bool> combine_used(const std::vector<bool>& used) = 0;
};

/// All-reduce: every rank gets the whole average.
[[nodiscard]] std::unique_ptr<BucketReduction> make_all_reduction(const ProcessGroup& group);

}  // namespace lockstep
