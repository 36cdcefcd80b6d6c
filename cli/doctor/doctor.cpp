// `lockstep doctor [options]`
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is not in <cstdlib>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cli/arguments.h"
#include "cli/doctor/all_reduce_rank.h"
#include "cli/doctor/node_report.h"
#include "cli/doctor/probe.h"
#include "cli/doctor/trials.h"
#include "cli/doctor/visit.h"
#include "cli/verb.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/launch/init.h"

namespace lockstep::cli {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kHelp =
    "lockstep doctor [options]: check this machine and this build; for each line that is not\n"
    "green, print what to do. Paste the output into an issue: it has no secrets.\n"
    "\n"
    "  -n N           ranks that are to be started (default: one per GPU, else per core)\n"
    "  --quick        only look: no measurement, no all-reduce, no training steps\n"
    "  --json         print one JSON object\n"
    "  --color WHEN   auto, always or never (default auto)\n"
    "\n"
    "Started on several nodes, it checks each of them, the links between node 0 and the others,\n"
    "and what differs. Exit code 1: a line is red.\n"
    "\n"
    "Examples\n"
    "  lockstep doctor\n"
    "  lockstep run --nnodes 2 --node-rank 0 --rendezvous node0:29400 -n 1 lockstep doctor\n";

// Everything ends by this time, also if parts of the machine do not answer.
constexpr seconds kWholeLimit{55};
constexpr seconds kLoopbackLimit{5};
constexpr seconds kGatherLimit{75};

struct DoctorOptions {
  int ranks = 0;
  bool quick = false;
  bool json = false;
  std::size_t color = 0;
  bool help = false;
};

DoctorOptions read_options(const std::vector<std::string>& arguments) {
  DoctorOptions options;
  std::string color = "auto";
  Arguments declared("doctor", options.help);
  declared.option("-n", options.ranks, {1, 4096});
  declared.flag("--quick", options.quick);
  declared.flag("--json", options.json);
  declared.option("--color", color);
  declared.read(arguments);
  options.color = read_choice("--color", color, {"auto", "always", "never"});
  return options;
}

// The folder of the trials, removed with them.
class TrialFolder {
 public:
  explicit TrialFolder(const Environment& environment)
      : path_(environment.find("TMPDIR").value_or("/tmp") + "/lockstep-doctor-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw SystemError(fmt::format("cannot make the folder {}", path_), errno);
    }
  }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;
  ~TrialFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

void run_trials(DoctorFacts& facts, const DoctorOptions& options, const Environment& environment,
                Deadline deadline) {
  const TrialFolder folder(environment);
  const auto run = [&, runner = trial_runner(folder.path(), environment)](
                       const std::vector<std::string>& words, seconds limit) {
    const auto left = std::chrono::duration_cast<seconds>(deadline.remaining());
    return runner(words, std::min(limit, std::max(left, seconds(1))));
  };
  const auto programs = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  facts.torch = try_torch(run, programs / "lockstep-doctor");
  facts.mpi = find_mpi(run);
  if (options.quick) return;
  facts.memory_bytes_per_second = measure_memory(deadline);
  facts.all_reduce = try_all_reduce(run, programs / "lockstep");
  facts.training = try_training(run, programs / "lockstep");
}

DoctorReport check_this_node(const DoctorOptions& options, const Environment& environment,
                             const World* world, const VisitHost* host) {
  const auto deadline = Deadline::after(kWholeLimit);
  auto facts = probe_system(environment, options.ranks);
  facts.loopback_failure =
      probe_loopback(Deadline::after(kLoopbackLimit), facts.loopback_bytes_per_second);
  if (world != nullptr) {
    facts.node = world->node();
    facts.link = check_links(*world, *host, deadline);
  }
  run_trials(facts, options, environment, deadline);
  return report_of(facts);
}

// The reports of all nodes, on the first rank of node 0; empty elsewhere.
std::vector<DoctorReport> check_nodes(const DoctorOptions& options, const Environment& environment,
                                      const World& world) {
  if (world.local_rank() != 0) return {};
  const VisitHost host(world.address_of(world.rank()));
  const auto own = check_this_node(options, environment, &world, &host);
  const auto key = [](int node) { return fmt::format("doctor/{}/report", node); };
  auto& store = world.store();
  const auto deadline = Deadline::after(kGatherLimit);
  if (world.node() != 0) {
    store.set(key(world.node()), to_text(own), deadline);
    return {};
  }
  std::vector<DoctorReport> reports{own};
  for (int node = 1; node < world.num_nodes(); ++node) {
    try {
      reports.push_back(report_from_text(store.get_text(key(node), deadline)));
    } catch (const Error& error) {
      reports.push_back(
          {.node = {.host = fmt::format("node {}", node), .values = {}},
           .lines = {{"report", Verdict::red, error.what(), "read the output of its launcher"}}});
    }
  }
  return reports;
}

std::vector<DoctorReport> check_all(const DoctorOptions& options, const Environment& environment) {
  if (find_placement(environment).source == PlacementSource::none) {
    return {check_this_node(options, environment, nullptr, nullptr)};
  }
  const auto world = init({.timeout = seconds(60)});
  if (world.num_nodes() > 1) return check_nodes(options, environment, world);
  if (world.rank() != 0) return {};
  auto here = options;
  if (here.ranks == 0) here.ranks = world.size();
  return {check_this_node(here, environment, nullptr, nullptr)};
}

}  // namespace

int run_doctor(const std::vector<std::string>& arguments, Streams streams) {
  try {
    if (arguments == std::vector<std::string>{kAllReduceRank}) return run_all_reduce_rank(streams);
    const auto options = read_options(arguments);
    if (options.help) {
      streams.out << kHelp;
      return kSuccess;
    }
    const auto begin = Clock::now();
    const auto environment = Environment::of_process();
    const auto reports = check_all(options, environment);
    if (reports.empty()) return kSuccess;  // another rank prints
    const double time = std::chrono::duration<double>(Clock::now() - begin).count();
    constexpr ColorChoice kChoices[] = {ColorChoice::automatic, ColorChoice::always,
                                        ColorChoice::never};
    const bool color =
        wants_color(kChoices[options.color], environment, ::isatty(STDOUT_FILENO) == 1);
    streams.out << (options.json ? doctor_json(reports, time) : doctor_text(reports, time, color));
    return worst_of(reports) == Verdict::red ? kFailure : kSuccess;
  } catch (const Error& error) {
    return report("doctor", error, streams.error);
  }
}

}  // namespace lockstep::cli
