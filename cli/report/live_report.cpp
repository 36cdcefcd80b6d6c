#include "cli/report/live_report.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "cli/report/page_writer.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kShortest{5};
// Processor time of a page: at most 1/250 of the time, 0.4 %.
constexpr int kShare = 250;

// As linux/ioprio.h has them, which does not compile as C++ in Linux 6.1.192 and others: it names a
// parameter "class".
constexpr int kIoprioWhoProcess = 1;
constexpr int kIoprioIdle = 3 << 13;

// Whatever else wants a processor or the disk comes first.
void set_lowest_priority() {
  ::setpriority(PRIO_PROCESS, 0, 19);
  const sched_param none{};
  ::sched_setscheduler(0, SCHED_IDLE, &none);
  ::syscall(SYS_ioprio_set, kIoprioWhoProcess, 0, kIoprioIdle);
}

std::chrono::nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Returns true when the launcher has ended, false after `limit`.
bool has_ended(int alive, std::chrono::milliseconds limit) {
  pollfd end{.fd = alive, .events = POLLIN, .revents = 0};
  return ::poll(&end, 1, static_cast<int>(limit.count())) != 0;
}

// A page that cannot be written now, for example because the disk is full, is tried again later.
void try_write(PageWriter& writer, std::optional<std::chrono::seconds> reload) noexcept {
  try {
    writer.write(reload);
  } catch (const std::exception&) {
  }
}

class SpawnOptions {
 public:
  SpawnOptions(int input) {
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    // A session of its own: Ctrl-C and a signal to the group end the launcher, not this process.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;
  ~SpawnOptions() {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
  }

  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t actions;
};

}  // namespace

LiveReport::LiveReport(std::string folder, std::chrono::milliseconds delay)
    : folder_(std::move(folder)) {
  if (delay == std::chrono::milliseconds{}) {
    start();
    return;
  }
  thread_ = std::jthread([this, delay](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, stop, delay, [&] { return stop.stop_requested(); })) start();
  });
}

void LiveReport::start() noexcept {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return;
  const FileDescriptor input(pipe[0]);
  alive_ = FileDescriptor(pipe[1]);
  const SpawnOptions options(input.number());
  // The path, not the link: `ps` shows the last part as the name of the process.
  std::error_code error;
  auto program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return;
  std::string verb = "report";
  std::string option = "--follow";
  std::array<char*, 5> words{program.data(), verb.data(), option.data(), folder_.data(), nullptr};
  std::array<char*, 1> no_variables{nullptr};
  if (::posix_spawn(&process_, program.c_str(), &options.actions, &options.attributes, words.data(),
                    no_variables.data()) != 0) {
    process_ = -1;
  }
}

LiveReport::~LiveReport() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
  if (process_ > 0) {
    // It has nothing to lose, and must not replace the last page by an older one.
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  try {
    PageWriter(folder_).write(std::nullopt);
  } catch (const std::exception&) {  // the run has ended; its outcome does not depend on the page
  }
}

std::chrono::seconds next_page_after(std::chrono::nanoseconds cost) {
  return std::max(kShortest, std::chrono::ceil<std::chrono::seconds>(kShare * cost));
}

int follow_run(const std::string& folder, int alive) {
  set_lowest_priority();
  PageWriter writer(folder);
  auto interval = kShortest;
  do {
    const auto before = processor_time();
    try_write(writer, interval);
    interval = next_page_after(processor_time() - before);
  } while (!has_ended(alive, interval));
  try_write(writer, std::nullopt);
  return 0;
}

}  // namespace lockstep::cli
