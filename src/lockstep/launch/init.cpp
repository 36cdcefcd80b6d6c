#include "lockstep/launch/init.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/foreign.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/profile.h"
#include "lockstep/trace/run_pages.h"

namespace lockstep {
namespace {

// The descriptor of a memfd called `name` that the launcher passed to this process. It is made
// close-on-exec, so that programs that this one starts do not get it. They inherit the variable
// nevertheless, and their descriptor of that number may be any file.
std::optional<int> find_inherited(const Environment& environment, const char* variable,
                                  const std::string& name) {
  const auto number = environment.find_integer(variable);
  if (!number) return std::nullopt;
  const int descriptor = static_cast<int>(*number);
  if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
    throw UsageError(fmt::format(
        "{} is {}, but no such descriptor is open: start this process directly with the launcher, "
        "not through a script that closes descriptors",
        variable, descriptor));
  }
  std::error_code error;
  const auto link =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), error).string();
  if (!error && link.find("memfd:" + name) == std::string::npos) {
    throw UsageError(fmt::format(
        "{} is {}, but that descriptor is {}: a rank started this process, not `lockstep run`; "
        "unset the variables LOCKSTEP_* for it, or start it with its own launcher",
        variable, descriptor, link));
  }
  return descriptor;
}

// Static, so that it lives until the process exits: a crash at the end of main() is recorded too.
void report_crashes_to(int descriptor) { static const CrashHandler handler(descriptor); }

World meet_under_lockstep_run(const Placement& placement, const Environment& environment,
                              Deadline deadline) {
  // The launcher reads lines from a pipe; with full buffering they would arrive late.
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  const auto secret = find_inherited(environment, Agent::kSecretVariable, "lockstep secret");
  if (!secret)
    throw UsageError(
        "LOCKSTEP_STORE is set but LOCKSTEP_SECRET_FD is not: start the program with `lockstep "
        "run`, or unset LOCKSTEP_STORE");
  const FileDescriptor owned(*secret);
  if (const auto crash =
          find_inherited(environment, Agent::kCrashVariable, "lockstep crash record")) {
    report_crashes_to(*crash);
  }
  // Before the ranks meet, so that `lockstep top` shows a rank that waits for others.
  RankPage page;
  if (const auto pages =
          find_inherited(environment, Agent::kPagesVariable, RunPages::kMemoryName)) {
    page = RunPages(FileDescriptor(*pages)).page(placement.rank);
    page.words().pid.store(static_cast<std::uint64_t>(::getpid()), std::memory_order_relaxed);
  }
  const auto server = Endpoint::parse(environment.find("LOCKSTEP_STORE").value());
  auto world = meet(Store::connect(server, Secret::from_descriptor(owned.number()),
                                   {placement.job, placement.round},
                                   {MemberKind::rank, placement.rank}, deadline),
                    placement, deadline);
  world.set_page(std::move(page));
  return world;
}

// The command line of this process.
std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  // The executable itself, not the file that PATH has under its name now.
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (words.empty() || error)
    throw SystemError("cannot find this program in /proc/self/exe", error.value());
  words.front() = program.string();
  return words;
}

[[noreturn]] void become_launcher(int ranks, const Environment& environment) {
  keep_standard_descriptors();
  auto without_spawn = environment;
  without_spawn.remove("LOCKSTEP_RANKS");
  std::exit(run_job({.command = own_command(), .num_ranks = ranks}, without_spawn));
}

World find_world(const InitOptions& options, const Environment& environment, Deadline deadline) {
  const auto placement = find_placement(environment);
  if (placement.source != PlacementSource::none) raise_descriptor_limit();  // one per peer
  if (placement.source == PlacementSource::lockstep) {
    return meet_under_lockstep_run(placement, environment, deadline);
  }
  if (placement.source != PlacementSource::none) {
    return meet_under_foreign_launcher(placement, environment, deadline);
  }
  const auto ranks =
      options.ranks > 0 ? options.ranks : environment.find_integer("LOCKSTEP_RANKS").value_or(1);
  if (ranks < 1 || ranks > kMaxMembers) {
    throw UsageError(
        fmt::format("the number of ranks (LOCKSTEP_RANKS or InitOptions::ranks) is {}, "
                    "expected 1 to {}",
                    ranks, kMaxMembers));
  }
  if (ranks > 1) become_launcher(static_cast<int>(ranks), environment);
  return World::alone(placement);
}

}  // namespace

World init(const InitOptions& options) {
  const auto environment = Environment::of_process();
  const auto deadline = Deadline::after(options.timeout);
  auto world = find_world(options, environment, deadline);
  profile_if_requested(world, environment, deadline);
  return world;
}

}  // namespace lockstep
