#include "cli/bench/comm/jobs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/launch/job.h"
#include "lockstep/launch/program_path.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

fs::path own_program() {
  std::error_code error;
  auto program = fs::read_symlink("/proc/self/exe", error);
  if (error) throw SystemError("cannot find this program in /proc/self/exe", error.value());
  return program;
}

// Runs `command` without a terminal; returns whether it exits with 0.
bool succeeds(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const auto lines = environment.lines();
  std::vector<char*> variables;
  for (const auto& line : lines) variables.push_back(const_cast<char*>(line.c_str()));
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
  }
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, words.front(), &actions, nullptr, words.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0 || ::waitpid(child, &status, 0) != child) return false;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

BackendJob find_gloo(const BenchCommOptions& options, int num_ranks,
                     const Environment& environment) {
  auto python = options.python;
  if (python.empty()) python = environment.find("LOCKSTEP_PYTHON").value_or("");
  if (python.empty()) python = "python3";
  if (!succeeds({python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"},
                environment)) {
    throw UsageError(
        fmt::format("--compare gloo: {} does not start or has no torch with Gloo. Name another "
                    "Python with --python PATH or LOCKSTEP_PYTHON, or run `pip install torch`",
                    python));
  }
  // The same path relative to bin/ in a build folder and in an installation.
  const auto script =
      own_program().parent_path().parent_path() / "share/lockstep/bench_comm_gloo.py";
  if (!fs::exists(script)) {
    throw UsageError(
        fmt::format("--compare gloo: {} is missing; reinstall lockstep", script.string()));
  }
  return {.name = "gloo", .command = {python, script.string()}, .num_ranks = num_ranks};
}

BackendJob find_mpi(int num_ranks, int cores, const Environment& environment) {
  const auto program = own_program().parent_path() / "lockstep-bench-mpi";
  if (!fs::exists(program)) {
    throw UsageError(
        "--compare mpi: this lockstep was built without MPI. Install Open MPI (Debian: "
        "libopenmpi-dev openmpi-bin), configure and build again");
  }
  const auto candidates = program_candidates("mpirun", environment);
  const auto mpirun = std::ranges::find_if(
      candidates, [](const auto& path) { return ::access(path.c_str(), X_OK) == 0; });
  if (mpirun == candidates.end()) {
    throw UsageError("--compare mpi: no mpirun on PATH. Install Open MPI (Debian: openmpi-bin)");
  }
  BackendJob job{.name = "mpi", .command = {*mpirun, "-n", std::to_string(num_ranks)}};
  // Each rank pins itself to the processors of lockstep's rank; mpirun would choose others.
  job.command.insert(job.command.end(), {"--bind-to", "none"});
  // mpirun requires a remote shell even for one host, and ssh may not be installed.
  job.command.insert(job.command.end(), {"--mca", "plm_rsh_agent", "false"});
  if (num_ranks > cores) job.command.emplace_back("--oversubscribe");
  if (::geteuid() == 0) job.command.emplace_back("--allow-run-as-root");
  job.command.push_back(program.string());
  return job;
}

}  // namespace

std::vector<BackendJob> find_backends(const BenchCommOptions& options, int num_ranks, int cores,
                                      const Environment& environment) {
  std::vector<BackendJob> jobs{{.name = "lockstep",
                                .command = {own_program().string(), "bench", "comm-rank"},
                                .num_ranks = num_ranks}};
  for (const auto peer : options.compare) {
    jobs.push_back(peer == Peer::gloo ? find_gloo(options, num_ranks, environment)
                                      : find_mpi(num_ranks, cores, environment));
  }
  return jobs;
}

std::variant<CommAnswer, int> run_backend(const BackendJob& job, const CommRequest& request,
                                          const std::string& folder, int round,
                                          const Environment& environment) {
  const auto files = fmt::format("{}/{}-{}", folder, job.name, round);
  const auto request_path = files + ".request.json";
  const auto answer_path = files + ".answer.json";
  write_request(job.name == "lockstep" ? request : peer_request(request), request_path);
  auto command = job.command;
  command.insert(command.end(), {request_path, answer_path});
  auto variables = environment;
  variables.set("OMP_NUM_THREADS", "1");
  // Otherwise Gloo listens on the address of the host name.
  if (job.name == "gloo") variables.set("GLOO_SOCKET_IFNAME", "lo");
  const int code = run_job({.command = command,
                            .num_ranks = job.num_ranks,
                            .announce = false,
                            .pin = job.num_ranks == request.ranks,
                            .run_dir = files},
                           variables);
  if (code != 0) return code;
  auto answer = read_answer(answer_path);
  if (answer.name.empty()) answer.name = job.name;
  return answer;
}

CommRequest peer_request(const CommRequest& request) {
  auto peers = request;
  peers.cases.clear();
  for (auto timed : request.cases) {
    timed.memory = MemoryKind::ordinary;
    if (std::ranges::find(peers.cases, timed) == peers.cases.end()) peers.cases.push_back(timed);
  }
  return peers;
}

}  // namespace lockstep::cli
