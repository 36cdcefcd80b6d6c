#include "cli/train/program/run_end.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/ddp/replica_check.h"
#include "lockstep/flat/walk.h"

namespace lockstep::cli {
namespace {

void write_finished(const SavedConfig& saved, const SummaryFacts& facts) {
  write_whole(facts.folder + "/finished.json",
              to_json(Finished{.length = to_string(saved.resolved.config.length),
                               .steps = facts.steps,
                               .why = facts.why,
                               .gave_up = facts.gave_up}));
}

}  // namespace

std::uint64_t equal_digest(const FlatParameters& flat, const ProcessGroup& group) {
  std::uint64_t own = 0;
  for (int segment = 0; segment < flat.num_segments(); ++segment) {
    own = own * 31 + digest_of(flat.values(segment));
  }
  const auto other = find_differing_rank(group, own, "digests at the end of the run");
  if (other) {
    throw PeerError(*other,
                    fmt::format("rank {}'s parameters are not those of rank 0: replicas must be "
                                "equal after every step",
                                *other));
  }
  return own;
}

std::string end_reason(std::int64_t steps, bool gave_up, std::int64_t since) {
  return gave_up ? fmt::format("No better evaluation in {}: ended at step {}.", since, steps)
                 : fmt::format("Done: {} steps.", steps);
}

std::string write_end(const SavedConfig& saved, const SummaryFacts& facts) {
  auto summary = summary_text(saved, facts);
  write_whole(facts.folder + "/summary.txt", summary);
  write_finished(saved, facts);
  return summary;
}

std::string write_end_again(const SavedConfig& saved, const SummaryFacts& facts) {
  write_finished(saved, facts);
  return fmt::format("Step {} is done already: nothing is left to do. Ask for more with --for{}.",
                     facts.steps, facts.gave_up ? " and --patience" : "");
}

}  // namespace lockstep::cli
