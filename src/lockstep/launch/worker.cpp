#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/run_folder.h"
#include "lockstep/launch/worker_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kMostCrashBytes = 4u << 20;
constexpr int kMostReadsAtOnce = 256;
// A debugger or strace stops its process often and briefly; after this many consecutive checks the
// process counts as stopped.
constexpr int kTracedLooks = 3;

FileDescriptor make_crash_file() {
  FileDescriptor file(::memfd_create("lockstep crash record", MFD_CLOEXEC));
  if (!file) throw SystemError("cannot create a memfd for a crash record", errno);
  return file;
}

SupervisedCommand supervised(const AgentOptions& options, const WorkerPlan& plan, int crash) {
  SupervisedCommand command{.command = options.command,
                            .environment = plan.environment,
                            .processors = plan.processors,
                            .descriptors = {crash},
                            .linger = options.limits.grace,
                            .descriptor_limit = options.descriptor_limit};
  command.environment.set(Agent::kCrashVariable, std::to_string(Supervisor::kFirstDescriptor));
  const auto pass_on = [&command](int descriptor, const char* variable) {
    const auto number = Supervisor::kFirstDescriptor + static_cast<int>(command.descriptors.size());
    command.descriptors.push_back(descriptor);
    command.environment.set(variable, std::to_string(number));
  };
  if (options.secret >= 0) pass_on(options.secret, Agent::kSecretVariable);
  if (options.pages != nullptr) pass_on(options.pages->descriptor(), Agent::kPagesVariable);
  const bool is_first = plan.identity.local_rank == 0;
  if (is_first && options.standard_input == StandardInput::to_first_worker) {
    command.standard_input = STDIN_FILENO;
  }
  return command;
}

// The state of a process in /proc: R, S, T, …; a blank if it is not available.
char state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(") ");
  return end == std::string::npos || end + 2 >= text.size() ? ' ' : text[end + 2];
}

// 0 if it is not available.
std::uint64_t resident_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Worker::Worker(const AgentOptions& options, const WorkerPlan& plan, const RoundClock& clock)
    : clock_(clock),
      pages_(options.pages),
      log_(log_path(options.logs, plan.identity.rank, options.restarts)),
      crash_(make_crash_file()),
      supervisor_(supervised(options, plan, crash_.number())) {
  outcome_.rank = plan.identity.rank;
  outcome_.node = plan.identity.node;
  outcome_.host = options.host;
  outcome_.started = clock_.at(std::chrono::steady_clock::now());
  outcome_.log_path = log_.path();
  if (pages_ == nullptr) return;
  pages_->set_host(outcome_.rank, outcome_.node, outcome_.host);
  pages_->set_standing(outcome_.rank, RankStanding::running);
}

void Worker::send(int signal, std::chrono::steady_clock::time_point now, bool to_end) {
  if (has_ended()) return;
  if (to_end && !told_) told_ = now;
  supervisor_.send(signal);
}

void Worker::kill_all(std::chrono::steady_clock::time_point now) {
  if (!told_) told_ = now;
  if (stopped_) outcome_.note = "was stopped when it was killed";
  supervisor_.kill_all();
}

bool Worker::receive_news() {
  const bool before = has_ended();
  while (const auto news = supervisor_.try_receive()) apply(*news);
  return has_ended() && !before;
}

void Worker::apply(const SupervisorNews& news) {
  if (const auto* started = std::get_if<WorkerStarted>(&news)) {
    outcome_.pid = started->pid;
  } else if (const auto* failure = std::get_if<StartFailure>(&news)) {
    outcome_.start_failure = *failure;
  } else if (const auto* ended = std::get_if<WorkerEnded>(&news)) {
    outcome_.status = ended->status;
    outcome_.ended = clock_.at(ended->at);
    outcome_.told_to_end = told_ && ended->at >= *told_;
    note_end();
  }
}

bool Worker::read(OutputStream stream, std::span<char> buffer, Console& console) {
  FileDescriptor& from = pipe(stream);
  if (!from) return false;
  const auto count = ::read(from.number(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count <= 0) {
    close(stream, console);
    return false;
  }
  auto lines = log_.append(stream, {buffer.data(), static_cast<std::size_t>(count)});
  console.show(outcome_.rank, stream, std::move(lines));
  if (auto live = log_.release_live()) console.show_live(outcome_.rank, std::move(*live));
  if (log_.failure() && !std::exchange(log_failure_said_, true)) {
    console.notice(fmt::format("the log of rank {} ends here, the rank continues: {}",
                               outcome_.rank, log_.failure()->what()));
  }
  return true;
}

void Worker::drain(std::span<char> buffer, Console& console) {
  for (const auto stream : {OutputStream::standard_output, OutputStream::standard_error}) {
    for (int i = 0; i < kMostReadsAtOnce && read(stream, buffer, console); ++i) {
    }
  }
  outcome_.last_lines = log_.last_lines();
  outcome_.uncaught = log_.uncaught();
}

bool Worker::collect(std::span<char> buffer, Console& console) {
  if (gone_) return true;
  if (!supervisor_.try_collect()) return false;
  (void)receive_news();
  if (!has_ended()) {  // the supervisor was killed, and its worker died with it
    outcome_.status = ExitStatus::signaled(9);
    outcome_.ended = clock_.at(std::chrono::steady_clock::now());
    outcome_.told_to_end = told_.has_value();
    outcome_.note = "its supervisor process was killed";
    note_end();
  }
  drain(buffer, console);
  close(OutputStream::standard_output, console);
  close(OutputStream::standard_error, console);
  outcome_.last_lines = log_.last_lines();
  outcome_.uncaught = log_.uncaught();
  gone_ = true;
  return true;
}

bool Worker::look() {
  if (has_ended() || outcome_.pid == 0) return false;
  const char state = state_of(outcome_.pid);
  traced_looks_ = state == 't' ? traced_looks_ + 1 : 0;
  const bool stopped = state == 'T' || traced_looks_ >= kTracedLooks;
  if (pages_ != nullptr) {
    pages_->set_standing(outcome_.rank, stopped ? RankStanding::stopped : RankStanding::running);
    pages_->set_memory(outcome_.rank, resident_bytes(outcome_.pid));
  }
  return std::exchange(stopped_, stopped) != stopped;
}

bool Worker::look_at_supervisor() {
  const bool stopped = !gone_ && state_of(supervisor_.pid()) == 'T';
  return std::exchange(supervisor_stopped_, stopped) != stopped;
}

void Worker::close(OutputStream stream, Console& console) {
  FileDescriptor& from = pipe(stream);
  if (!from) return;
  from.reset();
  if (auto line = log_.finish(stream)) console.show(outcome_.rank, stream, {std::move(*line)});
}

void Worker::note_end() {
  read_crash_record();
  if (pages_ == nullptr) return;
  pages_->set_standing(outcome_.rank, RankStanding::ended, outcome_.status->raw());
  outcome_.where = where_is(pages_->state_of(outcome_.rank));
}

void Worker::read_crash_record() {
  std::string text(kMostCrashBytes, '\0');
  const auto count = ::pread(crash_.number(), text.data(), text.size(), 0);
  if (count <= 0) return;
  text.resize(static_cast<std::size_t>(count));
  outcome_.crash_record = std::move(text);
}

}  // namespace lockstep
