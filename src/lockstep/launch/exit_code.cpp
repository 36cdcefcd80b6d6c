#include "lockstep/launch/exit_code.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>

namespace lockstep {
namespace {

constexpr int kUsageCode = 2;
constexpr int kEnvironmentCode = 125;
constexpr int kNotExecutableCode = 126;
constexpr int kNotFoundCode = 127;
constexpr int kSignalBase = 128;

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : "SIG?";
}

ExitStatus ExitStatus::exited(int code) noexcept { return ExitStatus((code & 0xff) << 8); }

ExitStatus ExitStatus::signaled(int signal) noexcept { return ExitStatus(signal & 0x7f); }

std::optional<int> ExitStatus::exit_code() const noexcept {
  if (!WIFEXITED(raw_)) return std::nullopt;
  return WEXITSTATUS(raw_);
}

std::optional<int> ExitStatus::signal() const noexcept {
  if (!WIFSIGNALED(raw_)) return std::nullopt;
  return WTERMSIG(raw_);
}

bool ExitStatus::dumped_core() const noexcept { return WIFSIGNALED(raw_) && WCOREDUMP(raw_); }

int ExitStatus::shell_code() const noexcept {
  return signal() ? kSignalBase + *signal() : exit_code().value_or(kEnvironmentCode);
}

std::string ExitStatus::describe() const {
  if (!signal()) return fmt::format("exit code {}", shell_code());
  return fmt::format("signal {} ({}{})", *signal(), signal_name(*signal()),
                     dumped_core() ? ", core dumped" : "");
}

std::string describe(RunCause cause) {
  switch (cause) {
    case RunCause::finished:
      return "finished";
    case RunCause::rank_failed:
      return "rank_failed";
    case RunCause::not_executable:
      return "not_executable";
    case RunCause::not_found:
      return "not_found";
    case RunCause::signal:
      return "signal";
    case RunCause::peer_node:
      return "peer_node";
    case RunCause::environment:
      return "environment";
    case RunCause::usage:
      return "usage";
  }
  return "unknown";
}

bool says_not_executed(int exit_code) noexcept {
  return exit_code == kNotExecutableCode || exit_code == kNotFoundCode;
}

int launcher_exit_code(const ExitFacts& facts) noexcept {
  switch (facts.cause) {
    case RunCause::finished:
      return 0;
    case RunCause::rank_failed:
    case RunCause::peer_node:
      return facts.culprit ? facts.culprit->shell_code() : kEnvironmentCode;
    case RunCause::not_executable:
      return kNotExecutableCode;
    case RunCause::not_found:
      return kNotFoundCode;
    case RunCause::signal:
      return kSignalBase + facts.signal;
    case RunCause::environment:
      return kEnvironmentCode;
    case RunCause::usage:
      return kUsageCode;
  }
  return kEnvironmentCode;
}

}  // namespace lockstep
