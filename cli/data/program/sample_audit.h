// Which samples an epoch gave, held against each sample once. Pure: it counts what it is told, so
// it judges a sampler without trusting it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/kernels/digest.h"

namespace lockstep::cli {

struct AuditResult {
  std::int64_t num_once = 0;
  std::int64_t num_missing = 0;                // samples that no rank saw
  std::int64_t num_repeated = 0;               // times that a sample was given again
  std::vector<std::int64_t> first_missing{};   // at most ten
  std::vector<std::int64_t> first_repeated{};  // at most ten
  std::int64_t num_steps = 0;
  std::uint64_t batches = 0;  // digest of the global batches as sets, in order: the same at every
                              // world size when only who reads a sample depends on it
  std::uint64_t order = 0;  // digest of the samples as they came: differs from epoch to epoch when
                            // they are shuffled

  friend bool operator==(const AuditResult&, const AuditResult&) = default;
};

class SampleAudit {
 public:
  /// One byte of memory a sample.
  explicit SampleAudit(std::int64_t num_samples);

  /// One step's global batch: what all ranks together were given. Throws UsageError for a number
  /// that is no sample.
  void add_step(std::span<const std::int64_t> global_batch);

  [[nodiscard]] AuditResult result() const;

 private:
  std::vector<std::uint8_t> counts_;  // up to 255 times, more is as bad
  std::int64_t num_given_ = 0;
  std::int64_t num_steps_ = 0;
  Digest batches_;
  Digest order_;
};

}  // namespace lockstep::cli
