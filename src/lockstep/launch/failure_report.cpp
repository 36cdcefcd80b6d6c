#include "lockstep/launch/failure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <system_error>
#include <vector>

#include "lockstep/launch/console_style.h"
#include "lockstep/launch/rank_list.h"

namespace lockstep {
namespace {

std::string name_of(const RankOutcome& rank) {
  return rank.host.empty() ? fmt::format("rank {}", rank.rank)
                           : fmt::format("rank {} on {}", rank.rank, rank.host);
}

double seconds_between(RankOutcome::Time begin, RankOutcome::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

std::string start_failure(const RankOutcome& rank, const std::string& program) {
  const auto& failure = *rank.start_failure;
  auto reason = std::generic_category().message(failure.error_number);
  switch (failure.action) {
    case StartFailure::Action::execute:
      return fmt::format("could not execute {}: {}", program, reason);
    case StartFailure::Action::pin:
      return fmt::format("could not be pinned to its cores: {}; --no-pin starts it without",
                         reason);
    case StartFailure::Action::fork:
      return fmt::format("could not be forked: {}", reason);
    case StartFailure::Action::assign_descriptors:
      return fmt::format("could not get its file descriptors: {}", reason);
  }
  return reason;
}

std::string headline(const RankOutcome& rank, const FailureFacts& facts) {
  if (rank.start_failure) {
    return fmt::format("{} {}", name_of(rank), start_failure(rank, facts.program));
  }
  auto line = fmt::format("{} failed: {}, {:.1f} s after its start", name_of(rank),
                          rank.status->describe(), seconds_between(rank.started, rank.ended));
  if (!rank.note.empty()) line += fmt::format(" ({})", rank.note);
  return line;
}

void add_lines(std::string& block, const std::vector<std::string>& lines) {
  for (const auto& line : lines) block += fmt::format("    | {}\n", printable(line, false));
}

// How ranks ended, for example "exit code 1" → these ranks.
std::map<std::string, std::vector<int>> fold_others(std::span<const RankOutcome> ranks,
                                                    std::optional<std::size_t> culprit) {
  std::map<std::string, std::vector<int>> folded;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankOutcome& rank = ranks[i];
    if (culprit == i || !rank.status) continue;
    auto words = rank.status->succeeded() ? std::string("finished") : rank.status->describe();
    if (rank.told_to_end && !rank.status->succeeded()) words += " after the launcher ended it";
    if (!rank.note.empty()) words += fmt::format(", {}", rank.note);
    folded[words].push_back(rank.rank);
  }
  return folded;
}

void add_others(std::string& block, std::span<const RankOutcome> ranks,
                std::optional<std::size_t> culprit) {
  for (const auto& [words, numbers] : fold_others(ranks, culprit)) {
    block += fmt::format("{}{} {} {}: {}\n", numbers.size(), culprit ? " other" : "",
                         numbers.size() == 1 ? "rank" : "ranks", format_rank_list(numbers), words);
  }
}

std::string next_step(const RankOutcome* culprit, const FailureFacts& facts) {
  switch (facts.cause) {
    case RunCause::not_found:
      if (facts.program.find('/') != std::string::npos) {
        return fmt::format(
            "check the path: `ls -l {0}`; if the file exists, `file {0}` names the missing "
            "interpreter",
            facts.program);
      }
      return fmt::format(
          "check the name; a program in this folder is ./{0}; `command -v {0}` shows one in PATH",
          facts.program);
    case RunCause::not_executable:
      return fmt::format(
          "`chmod +x {0}`; a script needs a first line such as #!/bin/sh; `file {0}` shows the "
          "architecture of a binary",
          facts.program);
    case RunCause::signal:
      return "nothing: a signal ended the launcher; run the same command to start again";
    default:
      break;
  }
  if (culprit == nullptr) return "see the launcher's lines above";
  if (says_not_executed(culprit->status->exit_code().value_or(0))) {
    const bool is_path = facts.program.find('/') != std::string::npos;
    return fmt::format(
        "the program was not executed, so it is not restarted; `ldd {1}` lists missing shared "
        "libraries: install {0} again, or add their folder to LD_LIBRARY_PATH; if {0} is a script, "
        "the lines above name the missing command",
        facts.program, is_path ? facts.program : fmt::format("$(command -v {})", facts.program));
  }
  const int signal = culprit->status->signal().value_or(0);
  if (signal == SIGKILL) {
    return "lockstep did not send this SIGKILL: often the kernel ran out of memory; check `dmesg | "
           "grep -i -e oom -e killed`, then use less memory or fewer ranks";
  }
  if (signal != 0 && culprit->stack.empty()) {
    return fmt::format(
        "build with -g and run `gdb --args {}`, or call lockstep::init() first in main() to get "
        "the stack here",
        facts.program);
  }
  return fmt::format("read its complete log: less {}", culprit->log_path);
}

// The rank that has left its group according to the output of `culprit`, if that rank ended with
// exit code 0: it returned from main too early, and the others failed because of it. Its process
// may end after theirs.
std::optional<std::size_t> find_left_early(std::span<const RankOutcome> ranks,
                                           const RankOutcome& culprit) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankOutcome& rank = ranks[i];
    if (!rank.status || !rank.status->succeeded()) continue;
    const auto words = fmt::format("rank {} has left group", rank.rank);
    const auto says = [&](const std::string& line) { return line.find(words) != line.npos; };
    if (says(culprit.uncaught) ||
        std::any_of(culprit.last_lines.begin(), culprit.last_lines.end(), says)) {
      return i;
    }
  }
  return std::nullopt;
}

// Peers of a lost rank can detect that its connection ended, and end themselves, before its
// supervisor is scheduled and records the time.
constexpr std::chrono::seconds kAtOnce{1};

// Ended in a way that is not a consequence of a lost peer: ranks that lose a peer exit or abort.
bool was_struck(const RankOutcome& rank) {
  const int signal = rank.status->signal().value_or(0);
  return signal == SIGKILL || signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE ||
         signal == SIGILL;
}

}  // namespace

std::optional<std::size_t> find_culprit(std::span<const RankOutcome> ranks) {
  std::optional<std::size_t> first;
  std::optional<std::size_t> first_struck;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].failed() || ranks[i].told_to_end) continue;
    if (!first || ranks[i].ended < ranks[*first].ended) first = i;
    if (!was_struck(ranks[i])) continue;
    if (!first_struck || ranks[i].ended < ranks[*first_struck].ended) first_struck = i;
  }
  const bool at_once = first_struck && ranks[*first_struck].ended - ranks[*first].ended <= kAtOnce;
  return at_once ? first_struck : first;
}

std::string failure_block(std::span<const RankOutcome> ranks, const FailureFacts& facts) {
  if (facts.cause == RunCause::finished) return "";
  const auto culprit = find_culprit(ranks);
  std::string block = "lockstep | ";
  if (const auto left = culprit ? find_left_early(ranks, ranks[*culprit]) : std::nullopt) {
    block += fmt::format("{} ended with exit code 0 while other ranks were still in collectives\n",
                         name_of(ranks[*left]));
  }
  if (culprit) {
    block += headline(ranks[*culprit], facts);
  } else if (facts.cause == RunCause::signal) {
    block += fmt::format("{} to the launcher ended the run", signal_name(facts.signal));
  } else {
    block += facts.reason.empty() ? "the run failed" : facts.reason;
  }
  block += '\n';
  if (culprit && !ranks[*culprit].uncaught.empty()) {
    block += fmt::format("error: {}\n", printable(ranks[*culprit].uncaught, false));
  }
  if (culprit && !ranks[*culprit].where.empty()) {
    block += fmt::format("it was at: {}\n", printable(ranks[*culprit].where, false));
  }
  if (culprit && !ranks[*culprit].last_lines.empty()) {
    const auto& lines = ranks[*culprit].last_lines;
    block +=
        lines.size() == 1 ? "its last line:\n" : fmt::format("its last {} lines:\n", lines.size());
    add_lines(block, lines);
  }
  if (culprit && !ranks[*culprit].stack.empty()) {
    block += "its stack, innermost first:\n";
    add_lines(block, ranks[*culprit].stack);
  }
  add_others(block, ranks, culprit);
  if (facts.restarts > 0) block += fmt::format("restarts: {}\n", facts.restarts);
  if (!facts.run_folder.empty()) block += fmt::format("run folder: {}\n", facts.run_folder);
  block += fmt::format("next: {}\n", next_step(culprit ? &ranks[*culprit] : nullptr, facts));
  return block;
}

}  // namespace lockstep
