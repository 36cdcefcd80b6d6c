#include "cli/data/program/sample_audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::cli {

SampleAudit::SampleAudit(std::int64_t num_samples)
    : counts_(static_cast<std::size_t>(num_samples), 0) {}

void SampleAudit::add_step(std::span<const std::int64_t> global_batch) {
  std::vector<std::int64_t> sorted(global_batch.begin(), global_batch.end());
  std::ranges::sort(sorted);
  for (const auto sample : sorted) {
    if (sample < 0 || sample >= static_cast<std::int64_t>(counts_.size())) {
      throw UsageError(fmt::format("step {} has sample {}, but there are {} samples", num_steps_,
                                   sample, counts_.size()));
    }
    auto& count = counts_[static_cast<std::size_t>(sample)];
    if (count < 255) ++count;
  }
  const auto position = static_cast<std::uint64_t>(num_given_) * sizeof(std::int64_t);
  batches_.add(position, std::as_bytes(std::span(sorted)));
  order_.add(position, std::as_bytes(global_batch));
  num_given_ += static_cast<std::int64_t>(global_batch.size());
  ++num_steps_;
}

AuditResult SampleAudit::result() const {
  constexpr std::size_t most = 10;
  AuditResult result{.num_steps = num_steps_, .batches = batches_.value(), .order = order_.value()};
  for (std::size_t sample = 0; sample < counts_.size(); ++sample) {
    const auto count = counts_[sample];
    if (count == 1) ++result.num_once;
    if (count == 0) {
      ++result.num_missing;
      if (result.first_missing.size() < most) {
        result.first_missing.push_back(static_cast<std::int64_t>(sample));
      }
    }
    if (count > 1) {
      result.num_repeated += count - 1;
      if (result.first_repeated.size() < most) {
        result.first_repeated.push_back(static_cast<std::int64_t>(sample));
      }
    }
  }
  return result;
}

}  // namespace lockstep::cli
