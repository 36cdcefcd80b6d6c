// `lockstep train MODEL [options]`
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "build_facts.h"
#include "cli/report/environment_record.h"
#include "cli/report/live_report.h"
#include "cli/sibling.h"
#include "cli/train/data_files.h"
#include "cli/train/device_choice.h"
#include "cli/train/options.h"
#include "cli/train/run_start.h"
#include "cli/train/saved_config.h"
#include "cli/train/settings_check.h"
#include "cli/verb.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/run_folder.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPlainInShells[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+,./:@%";

// --debug-small has a folder of its own: it must not take the place of a real run.
std::string folder_of(const TrainConfig& config, bool debug_small) {
  auto folder = config.run.empty()
                    ? fmt::format("runs/{}{}", name_of(config.model), debug_small ? "-small" : "")
                    : config.run;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

// Replaces --device auto by the device that the run uses.
void settle_device(TrainConfig& config, const Machine& machine, Streams streams) {
  const auto decision = choose_device({.asked = config.device,
                                       .ranks = config.ranks,
                                       .num_gpus = machine.num_gpus,
                                       .allow_shared_gpu = config.allow_shared_gpu,
                                       .build_has_cuda = kBuildCuda,
                                       .cuda_missing = kBuildCudaWhy,
                                       .cuda_remedy = kBuildCudaHow});
  config.device = decision.device;
  if (!decision.reason.empty()) streams.error << decision.reason << '\n';
}

int ranks_of(const TrainConfig& config, const Machine& machine) {
  if (config.ranks == "auto") {
    return config.device == TrainDevice::cuda ? 1 : machine.cpu.num_cores();
  }
  int ranks = 0;
  const char* end = config.ranks.data() + config.ranks.size();
  const auto [stopped, error] = std::from_chars(config.ranks.data(), end, ranks);
  constexpr int most = 4096;
  if (error != std::errc{} || stopped != end || ranks < 1 || ranks > most) {
    throw UsageError(fmt::format("--ranks is \"{}\", expected a number from 1 to {}, or auto",
                                 config.ranks, most));
  }
  return ranks;
}

// The configuration of the run in `folder`, with the options that were given now.
SavedConfig resumed_config(const std::string& folder, const TrainOptions& options) {
  auto saved = read_config(folder);
  if (saved.resolved.config.model != options.model) {
    throw UsageError(
        fmt::format("{} is a run of {}: name another folder with --run, or give --fresh", folder,
                    name_of(saved.resolved.config.model)));
  }
  const auto is_small = [](const auto& origin) { return origin.second == "--debug-small"; };
  if (options.resolve.debug_small && std::ranges::none_of(saved.resolved.origins, is_small)) {
    throw UsageError(
        fmt::format("{} was started without --debug-small: leave it out, or give --fresh", folder));
  }
  std::vector<Given> given;
  for (const auto& setting : settings()) {
    if (!setting.is_used_by(saved.resolved.config)) continue;
    given.push_back({setting.name, setting.text(saved.resolved.config),
                     saved.resolved.origins.at(setting.name)});
  }
  given.insert(given.end(), options.given.begin(), options.given.end());
  auto resolved = resolve(options.model, given);
  const auto different = differences(saved, resolved.config);
  if (!different.empty()) {
    throw UsageError(fmt::format(
        "{} was started with {}. A resumed run keeps the settings that its result depends on: "
        "leave these options out to resume it, or start a new run with --fresh",
        folder, fmt::join(different, "; ")));
  }
  saved.resolved = std::move(resolved);
  return saved;
}

bool has_terminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1; }

// Makes the folder with everything that ranks need; the folder appears atomically, by a rename.
SavedConfig begin(const std::string& folder, ResolvedConfig resolved, int ranks,
                  const std::string& command, const Environment& environment) {
  check_new_run(resolved.config);
  const auto draft = fmt::format("{}.new-{}", folder, random_token());
  try {
    fs::create_directories(draft);
    SavedConfig saved{.resolved = std::move(resolved), .world = ranks};
    saved.files = prepare_data(saved.resolved.config,
                               {.run_folder = draft,
                                .torch_include = kTorchInclude,
                                .command = command,
                                .has_terminal = has_terminal()},
                               environment);
    write_config(draft, saved);
    fs::rename(draft, folder);
    return saved;
  } catch (const fs::filesystem_error& error) {
    fs::remove_all(draft);
    throw UsageError(fmt::format("cannot create the run's folder: {}", error.what()));
  } catch (...) {
    fs::remove_all(draft);
    throw;
  }
}

// Held while a command changes the configuration of a run. Ranks have another lock.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder)
      : file_(FileDescriptor::open(folder + "/launch.lock", O_RDWR | O_CREAT)) {
    if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
      throw UsageError(
          fmt::format("another command is training {}: wait until it ends, or start a new run with "
                      "--fresh",
                      folder));
    }
  }

 private:
  FileDescriptor file_;
};

// Nodes share the run's folder: each but the first has a folder of its own for its launches.
std::string next_launch_folder(const std::string& folder, int node) {
  const auto of_node = node == 0 ? "" : fmt::format("node-{}/", node);
  for (int number = 1;; ++number) {
    auto path = fmt::format("{}/launches/{}{}", folder, of_node, number);
    if (!fs::exists(path)) return path;
  }
}

int show_finished(const RunStart& start, const SavedConfig& saved, const Environment& environment,
                  Streams streams) {
  const auto command = typed_command(environment);
  const auto& config = saved.resolved.config;
  const auto model = name_of(config.model);
  const auto finished = try_read_finished(start.folder);
  std::ifstream summary(start.folder + "/summary.txt");
  if (summary) streams.out << summary.rdbuf();
  streams.out << fmt::format(
      "\nThis run is finished: {} Nothing was done. To continue it, or to start a new one:\n"
      "  {} train {} --run {} {} {}{}\n"
      "  {} train {} --run {} --fresh\n",
      finished ? finished->why : start.reason + ".", command, model, start.folder,
      length_option(config.length.unit), value_text({2 * config.length.amount, config.length.unit}),
      finished && finished->gave_up ? fmt::format(" --patience {}", 2 * config.patience) : "",
      command, model, start.folder);
  return kSuccess;
}

// environment.json: in the folder of the launch, and that of the newest launch in the run's folder.
void note_environment(const std::string& folder, const std::string& launch_folder,
                      const EnvironmentFacts& facts, const Environment& environment) {
  const auto json = environment_json(facts, describe_machine(environment), environment);
  write_whole(launch_folder + "/environment.json", json);
  write_whole(folder + "/environment.json", json);
}

// `num_ranks` is that of this node.
JobOptions job_options(const std::string& folder, const TrainConfig& config, int num_ranks,
                       const TrainOptions& options) {
  const auto node = options.nodes.node_rank.value_or(0);
  return {.command = {sibling_path("lockstep-train"), folder},
          .num_ranks = num_ranks,
          .num_nodes = options.nodes.num_nodes,
          .node = node,
          .rendezvous = options.nodes.rendezvous,
          .network = options.nodes.network,
          .announce = false,
          .speaks_for_all = true,
          .color = options.color,
          .timeout = options.nodes.timeout,
          .max_restarts = static_cast<int>(config.max_restarts),
          .final_code = kUsage,
          .run_dir = next_launch_folder(folder, node),
          .secret_file = options.nodes.secret_file};
}

int launch(const std::string& folder, const SavedConfig& saved, int num_ranks,
           const TrainOptions& options, const std::string& command,
           const Environment& environment) {
  const EnvironmentFacts facts{
      .command = {command}, .data = data_paths(folder, saved.files), .ranks = num_ranks};
  auto with_profile = environment;
  if (!options.profile.empty()) {
    with_profile.set("LOCKSTEP_PROFILE", options.profile);
    with_profile.set("LOCKSTEP_PROFILE_FILE", folder + "/profile.json");
  }
  const LiveReport live(folder);
  auto job = job_options(folder, saved.resolved.config, num_ranks, options);
  job.opened = [&](const std::string& launch_folder) {
    note_environment(folder, launch_folder, facts, environment);
  };
  job.metrics_port = options.metrics_port;
  job.metrics_folder = folder;
  return run_job(job, with_profile);
}

// The part of a node other than the first: node 0 prepares the folder, and writes the files of the
// run, before the nodes meet.
int launch_beside_node_0(const std::string& folder, const TrainConfig& config, int num_ranks,
                         const TrainOptions& options, const Environment& environment) {
  auto with_profile = environment;
  if (!options.profile.empty()) {
    with_profile.set("LOCKSTEP_PROFILE", options.profile);
    with_profile.set("LOCKSTEP_PROFILE_FILE", folder + "/profile.json");
  }
  return run_job(job_options(folder, config, num_ranks, options), with_profile);
}

int resume(const RunStart& start, const TrainOptions& options, const std::string& command,
           const Machine& machine, const Environment& environment, Streams streams) {
  const auto before = read_config(start.folder);
  auto saved = resumed_config(start.folder, options);
  auto& config = saved.resolved.config;
  // Version 0.1 wrote no device: it trained on the CPU.
  if (config.device == TrainDevice::automatic) config.device = TrainDevice::cpu;
  settle_device(config, machine, streams);
  const int num_ranks = ranks_of(saved.resolved.config, machine);
  const FolderLock lock(start.folder);
  fs::remove(start.folder + "/finished.json");
  write_config(start.folder, saved);
  streams.error << fmt::format("Resuming {}: {}.\n", start.folder, start.reason);
  const int code = launch(start.folder, saved, num_ranks, options, command, environment);
  if (code == kUsage) write_config(start.folder, before);  // the ranks refused the new options
  return code;
}

// The command that was typed, quoted for a shell: messages append options to it.
std::string typed_again(const std::vector<std::string>& arguments, const Environment& environment) {
  auto command = typed_command(environment) + " train";
  for (auto argument : arguments) {
    if (argument.empty() || argument.find_first_not_of(kPlainInShells) != std::string::npos) {
      for (auto at = argument.find('\''); at != std::string::npos;
           at = argument.find('\'', at + 4)) {
        argument.replace(at, 1, R"('\'')");
      }
      argument = "'" + argument + "'";
    }
    command += " " + argument;
  }
  return command;
}

int train(const TrainOptions& options, const std::string& command, const Environment& environment,
          Streams streams) {
  auto resolved = resolve(options.model, options.given, options.resolve);
  const auto asked = resolved.config;
  if (options.nodes.num_nodes > 1 && options.fresh) {
    throw UsageError(
        "--fresh chooses a free folder on each node by itself: for several nodes, name a new "
        "folder with --run");
  }
  const bool is_small = options.resolve.debug_small;
  const auto& origin = resolved.origins.at(length_setting(asked).name);
  const bool length_given = origin != "default" && origin != "--debug-small";
  const auto start =
      choose_start({.folder = folder_of(asked, is_small),
                    .length = length_given ? std::optional(to_string(asked.length)) : std::nullopt,
                    .fresh = options.fresh,
                    .must_resume = asked.resume == ResumeKind::required},
                   look_at);
  if (options.print_config) {
    streams.out << describe(
        start.kind == StartKind::fresh ? resolved : resumed_config(start.folder, options).resolved);
    return kSuccess;
  }
  if (start.kind == StartKind::finished) {
    return show_finished(start, resumed_config(start.folder, options), environment, streams);
  }
  const auto machine = describe_machine(environment);
  if (options.nodes.node_rank.value_or(0) > 0) {
    auto config = start.kind == StartKind::fresh
                      ? resolved.config
                      : resumed_config(start.folder, options).resolved.config;
    settle_device(config, machine, streams);
    return launch_beside_node_0(start.folder, config, ranks_of(config, machine), options,
                                environment);
  }
  if (start.kind == StartKind::fresh) {
    settle_device(resolved.config, machine, streams);
    const int num_ranks = ranks_of(resolved.config, machine);
    const auto saved = begin(start.folder, std::move(resolved), num_ranks * options.nodes.num_nodes,
                             command, environment);
    const FolderLock lock(start.folder);
    const int code = launch(start.folder, saved, num_ranks, options, command, environment);
    // Ranks create the folder of checkpoints after they have accepted the configuration.
    if (code == kUsage && !fs::exists(start.folder + "/checkpoints")) fs::remove_all(start.folder);
    return code;
  }
  return resume(start, options, command, machine, environment, streams);
}

}  // namespace

int run_train(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto environment = Environment::of_process();
    const auto options = read_train_options(arguments, environment);
    if (options.help) {
      const bool of_a_model = !arguments.empty() && !arguments.front().starts_with("-");
      streams.out << (of_a_model ? train_help(options.model) : train_help());
      return arguments.empty() ? kUsage : kSuccess;
    }
    return train(options, typed_again(arguments, environment), environment, streams);
  } catch (const Error& error) {
    return report("train", error, streams.error,
                  launcher_exit_code({.cause = RunCause::environment}));
  }
}

}  // namespace lockstep::cli
