#include "lockstep/launch/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>

#include "lockstep/launch/test_process_census_internal.h"
#include "lockstep/machine/cpu_topology.h"
#include "lockstep/testing/processes.h"

namespace {

// While this is set, the worker executes its program before its supervisor has continued after the
// fork: setpgid(2) then refuses the supervisor's call for the worker.
bool supervisor_is_late = false;

}  // namespace

// Instead of the C library's function of this name.
extern "C" int setpgid(pid_t process, pid_t group) noexcept {
  if (supervisor_is_late && process != 0) {
    errno = EACCES;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_setpgid, process, group));
}

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// A shell command under a supervisor, and its outcome.
class Watched {
 public:
  explicit Watched(const SupervisedCommand& command) : supervisor(command) {}
  explicit Watched(const std::string& script, const std::string& token = "none")
      : supervisor(shell(script, token)) {}

  static SupervisedCommand shell(const std::string& script, const std::string& token = "none") {
    auto environment = Environment::of_process();
    environment.set(kCensusVariable, token);
    return {.command = {"/bin/sh", "-c", script}, .environment = environment};
  }

  // Reads messages and output until the supervisor has ended.
  void finish() {
    const auto deadline = Deadline::after(20s);
    while (!supervisor.try_collect()) {
      ASSERT_FALSE(deadline.expired());
      attend();
    }
    attend();
  }

  void wait_for_output(const std::string& text) {
    const auto deadline = Deadline::after(10s);
    while (output.find(text) == std::string::npos) {
      ASSERT_FALSE(deadline.expired()) << output;
      attend();
    }
  }

  void attend() {
    std::array<pollfd, 4> waits{{{supervisor.socket(), POLLIN, 0},
                                 {supervisor.process(), POLLIN, 0},
                                 {supervisor.standard_output.number(), POLLIN, 0},
                                 {supervisor.standard_error.number(), POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), 50);
    while (const auto news = supervisor.try_receive()) {
      if (const auto* started = std::get_if<WorkerStarted>(&*news)) pid = started->pid;
      if (const auto* failed = std::get_if<StartFailure>(&*news)) failure = *failed;
      if (const auto* ended = std::get_if<WorkerEnded>(&*news)) status = ended->status;
    }
    for (auto* pipe : {&supervisor.standard_output, &supervisor.standard_error}) {
      std::array<char, 4096> chunk{};
      ssize_t count = 0;
      while (*pipe && (count = ::read(pipe->number(), chunk.data(), chunk.size())) > 0) {
        output.append(chunk.data(), static_cast<std::size_t>(count));
      }
      if (count == 0) pipe->reset();
    }
  }

  Supervisor supervisor;
  pid_t pid = 0;
  std::optional<ExitStatus> status;
  std::optional<StartFailure> failure;
  std::string output;
};

TEST(Supervisor, ReportsTheExactExitStatus) {
  for (const int code : {0, 1, 7, 127, 255}) {
    Watched worker("exit " + std::to_string(code));
    worker.finish();
    EXPECT_EQ(worker.status, ExitStatus::exited(code));
    EXPECT_GT(worker.pid, 0);
  }
  for (const int signal : {SIGKILL, SIGTERM, SIGUSR1}) {
    Watched worker("kill -" + std::to_string(signal) + " $$; sleep 10");
    worker.finish();
    EXPECT_EQ(worker.status->signal(), signal);
  }
}

TEST(Supervisor, DeliversTheOutputOfBothStreams) {
  Watched worker("echo out; echo err >&2");
  worker.finish();
  EXPECT_NE(worker.output.find("out\n"), std::string::npos);
  EXPECT_NE(worker.output.find("err\n"), std::string::npos);
}

TEST(Supervisor, DistinguishesAMissingProgramFromOneThatIsNotExecutable) {
  struct Case {
    const char* program;
    int error;
    int code;
  };
  for (const auto& [program, error, code] :
       {Case{"lockstep-no-such-program", ENOENT, 127}, Case{"/nowhere/program", ENOENT, 127},
        Case{"/etc/passwd", EACCES, 126}, Case{"/", EACCES, 126}}) {
    Watched worker(SupervisedCommand{.command = {program}, .environment = {{"PATH", "/bin"}}});
    worker.finish();
    ASSERT_TRUE(worker.failure) << program;
    EXPECT_EQ(worker.failure->action, StartFailure::Action::execute);
    EXPECT_EQ(worker.failure->error_number, error) << program;
    EXPECT_EQ(worker.status, ExitStatus::exited(code)) << program;
  }
}

TEST(Supervisor, APinToMissingProcessorsIsReported) {
  auto command = Watched::shell("true");
  command.processors = {100'000};
  Watched worker(command);
  worker.finish();
  ASSERT_TRUE(worker.failure);
  EXPECT_EQ(worker.failure->action, StartFailure::Action::pin);
  EXPECT_EQ(worker.status, ExitStatus::exited(125)) << "a failure of the machine, not the program";
}

TEST(Supervisor, PinsTheWorker) {
  auto command = Watched::shell("grep Cpus_allowed_list /proc/self/status");
  command.processors = {allowed_processors().back()};
  Watched worker(command);
  worker.finish();
  const auto expected = "Cpus_allowed_list:\t" + std::to_string(command.processors[0]) + "\n";
  EXPECT_EQ(worker.output, expected);
}

TEST(Supervisor, AWorkerHasItsDescriptorsAnEmptyInputAndNothingElse) {
  const FileDescriptor secret(::memfd_create("secret", 0));
  ASSERT_EQ(::write(secret.number(), "abc", 3), 3);
  ::lseek(secret.number(), 0, SEEK_SET);
  const int inheritable = ::dup(secret.number());  // without close-on-exec
  auto command = Watched::shell("cat; cat <&3; echo; ls /proc/self/fd | wc -l");
  command.descriptors = {secret.number()};
  Watched worker(command);
  worker.finish();
  ::close(inheritable);
  // 0, 1, 2, 3 and the listing itself.
  EXPECT_EQ(worker.output, "abc\n5\n");
}

TEST(Supervisor, AWorkersSignalsHaveTheirDefaults) {
  sigset_t user;
  sigset_t before;
  sigemptyset(&user);
  sigaddset(&user, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &user, &before);
  // Signals 32 and 33 belong to the C library, which leaves them ignored in processes it spawns.
  Watched worker("grep -E 'Sig(Blk|Ign)' /proc/self/status | sed s/000000018/000000000/");
  worker.finish();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(worker.output, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST(Supervisor, ForwardsSignalsToTheWorkerOnly) {
  Watched worker(
      "trap 'sleep 0.5; echo got it; exit 3' TERM; (trap 'echo child too' TERM; sleep 5) & echo "
      "up; "
      "while :; do sleep 0.05; done");
  worker.wait_for_output("up");
  worker.supervisor.send(SIGTERM);
  worker.wait_for_output("got it");
  worker.finish();
  EXPECT_EQ(worker.status, ExitStatus::exited(3));
  // The child gets a signal only when the worker has ended.
  EXPECT_TRUE(worker.output.starts_with("up\ngot it\n")) << worker.output;
}

TEST(Supervisor, AWorkerHasTheLimitOfDescriptorsItIsGiven) {
  auto command = Watched::shell("ulimit -Sn");
  command.descriptor_limit = 77;
  Watched worker(command);
  worker.finish();
  EXPECT_EQ(worker.output, "77\n");
}

TEST(Supervisor, AStoppedSupervisorIsKilledWithItsSession) {
  const auto token = census_token("stopped-supervisor");
  std::optional<Watched> worker(std::in_place, "echo up; sleep 100", token);
  worker->wait_for_output("up");
  ::kill(worker->supervisor.pid(), SIGSTOP);
  worker->supervisor.force();
  worker->finish();
  EXPECT_TRUE(wait_for_count(token, 0, Deadline::after(10s)));
}

TEST(Supervisor, ChildrenOfAWorkerEndWithIt) {
  const auto token = census_token("leftovers");
  // One ends on SIGTERM; one ignores it; one has its own process group.
  auto command = Watched::shell(
      "sleep 100 & (trap '' TERM; echo deaf; while :; do sleep 0.1; done) & timeout 100 sleep 100 "
      "& "
      "sleep 0.2; exit 4",
      token);
  command.linger = 300ms;
  Watched worker(command);
  worker.finish();
  EXPECT_EQ(worker.status, ExitStatus::exited(4));
  EXPECT_EQ(processes_with_token(token).size(), 0u);
}

TEST(Supervisor, ASingleChildThatIgnoresSigtermIsKilled) {
  const auto token = census_token("one-leftover");
  auto command = Watched::shell("trap '' TERM; sleep 100 & exit 4", token);
  command.linger = 100ms;
  Watched worker(command);
  worker.finish();
  EXPECT_EQ(worker.status, ExitStatus::exited(4));
  EXPECT_EQ(processes_with_token(token).size(), 0u);
}

TEST(Supervisor, AWorkerLeadsAProcessGroupOfItsOwn) {
  for (const bool late : {false, true}) {
    supervisor_is_late = late;
    // The fifth field of stat is the process group.
    Watched worker("read -r pid name state parent group rest < /proc/$$/stat; echo $group");
    worker.finish();
    EXPECT_EQ(worker.output, std::to_string(worker.pid) + "\n");
  }
  supervisor_is_late = false;
}

TEST(Supervisor, ASupervisorThatWasCollectedStaysCollected) {
  Watched worker("exit 0");
  worker.finish();
  EXPECT_TRUE(worker.supervisor.try_collect());
  EXPECT_TRUE(worker.supervisor.try_collect());
}

TEST(Supervisor, KillAllReachesGrandchildren) {
  const auto token = census_token("kill-all");
  Watched worker("trap '' TERM; (trap '' TERM; sleep 100 & sleep 100) & echo up; sleep 100", token);
  worker.wait_for_output("up");
  worker.supervisor.kill_all();
  worker.finish();
  EXPECT_EQ(worker.status->signal(), SIGKILL);
  EXPECT_EQ(processes_with_token(token).size(), 0u);
}

TEST(Supervisor, OrphansAreReaped) {
  Watched worker(
      "for i in 1 2 3 4 5; do (true &) ; done; sleep 0.3; "
      "for p in /proc/[0-9]*; do { read -r _ _ s pp _ < $p/stat; } 2>/dev/null; "
      "[ \"$pp\" = \"$PPID\" ] && [ \"$s\" = Z ] && echo zombie; done; true");
  worker.finish();
  EXPECT_EQ(worker.output, "");
}

TEST(Supervisor, DestroyingItEndsEverything) {
  const auto token = census_token("destroyed");
  {
    Watched worker("trap '' TERM; sleep 100 & echo up; sleep 100", token);
    worker.wait_for_output("up");
  }
  EXPECT_EQ(processes_with_token(token).size(), 0u);
}

TEST(Supervisor, AWorkerDiesWithItsKilledSupervisor) {
  const auto token = census_token("supervisor-killed");
  Watched worker("sleep 100 & echo $PPID; sleep 100", token);
  worker.wait_for_output("\n");
  ::kill(std::stoi(worker.output), SIGKILL);
  worker.finish();
  EXPECT_TRUE(wait_for_count(token, 0, Deadline::after(2s)));
}

TEST(Supervisor, WorkersAndTheirChildrenEndWithin2SecondsAfterTheLauncherWasKilled) {
  const auto play_launcher = [](testing::Rank& self) {
    std::vector<std::unique_ptr<Watched>> workers;
    for (int i = 0; i < 3; ++i) {
      workers.push_back(std::make_unique<Watched>(
          "trap '' TERM HUP INT; (trap '' TERM; sleep 100 & echo up; sleep 100) & sleep 100",
          census_token("launcher-killed", ::getppid())));
    }
    for (auto& worker : workers) worker->wait_for_output("up");
    self.note("all up");
    for (;;) ::pause();
  };
  const auto kill_launcher = [](const testing::RunningRanks& ranks) {
    const auto token = census_token("launcher-killed");
    ranks.wait_for_note(0, "all up", Deadline::after(20s));
    EXPECT_GE(processes_with_token(token).size(), 9u) << "three workers with children";
    ranks.send_signal(0, SIGKILL);
    EXPECT_TRUE(wait_for_count(token, 0, Deadline::after(2s)))
        << processes_with_token(token).size() << " processes outlive their launcher by 2 s";
  };
  const auto outcomes = testing::run_ranks_as_processes(
      1, play_launcher, {.expect = testing::Expect::anything, .meanwhile = kill_launcher});
  EXPECT_EQ(outcomes[0].signal, SIGKILL);
}

}  // namespace
}  // namespace lockstep
