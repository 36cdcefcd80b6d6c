// Counts how often an epoch contains each sample. Pure: it uses only the sample numbers it is
// given, so it does not depend on the sampler that it checks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/kernels/digest.h"

namespace lockstep::cli {

struct AuditResult {
  std::int64_t num_once = 0;
  std::int64_t num_missing = 0;                // samples that no rank saw
  std::int64_t num_repeated = 0;               // repetitions of samples
  std::vector<std::int64_t> first_missing{};   // at most ten
  std::vector<std::int64_t> first_repeated{};  // at most ten
  std::int64_t num_steps = 0;
  std::uint64_t batches = 0;  // digest of the global batches as sets, in order: the same at every
                              // world size if only the reading rank depends on it
  std::uint64_t order = 0;    // digest of the order of samples: differs between epochs if they are
                              // shuffled

  friend bool operator==(const AuditResult&, const AuditResult&) = default;
};

class SampleAudit {
 public:
  /// Uses one byte of memory per sample.
  explicit SampleAudit(std::int64_t num_samples);

  /// Adds the global batch of one step: the samples of all ranks. Throws UsageError for an invalid
  /// sample number.
  void add_step(std::span<const std::int64_t> global_batch);

  [[nodiscard]] AuditResult result() const;

 private:
  std::vector<std::uint8_t> counts_;  // saturate at 255
  std::int64_t num_given_ = 0;
  std::int64_t num_steps_ = 0;
  Digest batches_;
  Digest order_;
};

}  // namespace lockstep::cli
