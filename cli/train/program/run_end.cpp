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
    throw PeerError(
        *other, fmt::format("the parameters of rank {} differ from those of rank 0 at the end of "
                            "the run: replicas must be bit-identical after every step. Resume "
                            "the run from a checkpoint, and check the memory of both hosts",
                            *other));
  }
  return own;
}

std::string end_reason(std::int64_t steps, bool gave_up, std::int64_t since) {
  return gave_up ? fmt::format("Stopped at step {1}: no new best loss in {0} evaluations.", since,
                               steps)
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
  return fmt::format(
      "Nothing to do: the run has already done {} steps. To continue it, give a larger {}{}.",
      facts.steps, length_option(saved.resolved.config.length.unit),
      facts.gave_up ? " and --patience" : "");
}

}  // namespace lockstep::cli
