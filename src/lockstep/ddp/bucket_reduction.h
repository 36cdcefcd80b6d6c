// The collective calls of a reduction, as an interface. Reducer decides when a bucket is reduced
// and with which flags; a BucketReduction decides how. The default is all-reduce; with shards each
// rank gets only its own. Tests use a scripted one to run a Reducer in one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/call_flags.h"
#include "lockstep/collectives/process_group.h"

namespace lockstep {

/// What a hook (gradient_hook.h) sent and computed for a bucket.
struct BucketCost {
  std::int64_t wire_bytes = 0;  // an all-reduce of this size has as much traffic
  std::chrono::nanoseconds encode{0};
  std::chrono::nanoseconds decode{0};
};

/// The reduction of one bucket, in progress. Its functions throw PeerError as Work does.
class BucketWork {
 public:
  BucketWork() = default;
  BucketWork(const BucketWork&) = delete;
  BucketWork& operator=(const BucketWork&) = delete;
  virtual ~BucketWork() = default;

  /// Makes progress without waiting. Returns whether wait() would return at once.
  virtual bool advance() = 0;
  /// Returns when the bucket holds the average, or this rank's elements of it.
  virtual void wait() = 0;
  /// The reduced flags. Valid once wait() has returned.
  [[nodiscard]] virtual const GroupFlags& flags() const = 0;
  /// Valid once wait() has returned; zero: not measured.
  [[nodiscard]] virtual WorkTimes times() const { return {}; }
  /// Valid once wait() has returned; nullopt: the bucket was reduced as it is.
  [[nodiscard]] virtual std::optional<BucketCost> cost() const { return std::nullopt; }
};

struct BucketCall {
  std::string_view name;  // for messages; equal on all ranks
  CallFlags flags = {};
  std::int64_t weight = 0;  // this rank's weight in the average
  int index = 0;            // of the bucket
  bool is_last = false;     // no bucket of this step follows
};

class BucketReduction {
 public:
  BucketReduction() = default;
  BucketReduction(const BucketReduction&) = delete;
  BucketReduction& operator=(const BucketReduction&) = delete;
  virtual ~BucketReduction() = default;

  [[nodiscard]] virtual int num_ranks() const = 0;

  /// A step begins; what is left of the last one is discarded.
  virtual void begin() {}

  /// Starts the weighted average of `bucket` over the ranks, in place.
  /// Collective: all ranks start the same buckets in the same order.
  /// Returns at once; do not touch `bucket` until the BucketWork has been waited on.
  /// Throws PeerError when a rank is lost or makes a different call.
  [[nodiscard]] virtual std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                          const BucketCall& call) = 0;

  /// All buckets of the step have been waited on. `last` are the flags of the last one. Returns the
  /// flags of the step.
  /// Collective. Throws PeerError.
  [[nodiscard]] virtual GroupFlags end(const GroupFlags& last) { return last; }
  /// Whether BucketWork::wait() computes, on a GPU on the current stream.
  [[nodiscard]] virtual bool computes() const noexcept { return false; }
  /// What a hook has thrown on this rank in this step; end() then returns StepFlags::kFailed.
  [[nodiscard]] virtual std::exception_ptr failure() const noexcept { return nullptr; }

  /// The logical or of `used` over the ranks, by parameter.
  /// Collective. Returns when all ranks have called it. Throws PeerError.
  [[nodiscard]] virtual std::vector<bool> combine_used(const std::vector<bool>& used) = 0;
};

/// By bucket, the owners of its elements.
using BucketOwners = std::vector<std::shared_ptr<const Owners>>;

/// Each rank gets the average of the elements that it owns.
[[nodiscard]] std::unique_ptr<BucketReduction> make_reduction_to_owners(const ProcessGroup& group,
                                                                        BucketOwners owners);
/// All-reduce: every rank gets the whole average.
[[nodiscard]] std::unique_ptr<BucketReduction> make_all_reduction(const ProcessGroup& group);

}  // namespace lockstep
