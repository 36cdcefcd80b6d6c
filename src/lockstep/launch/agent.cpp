#include "lockstep/launch/agent.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/crash_report.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/worker_internal.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kChunkBytes = 64u << 10;
constexpr std::chrono::seconds kSymbolLimit{10};
constexpr std::uint32_t kNoWorker = ~0u;

// The source of an event of the loop.
enum class Source : std::uint32_t { signal, stop, news, supervisor, output, error };

std::uint64_t tag(Source source, std::uint32_t worker) {
  return std::uint64_t{worker} << 32 | static_cast<std::uint32_t>(source);
}

}  // namespace

// The state of Agent::run while it runs.
class Round {
 public:
  explicit Round(Agent& agent)
      : agent_(agent), buffer_(kChunkBytes), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw SystemError("cannot create an epoll descriptor", errno);
  }

  RoundOutcome run() {
    watch(agent_.relay_.descriptor(), tag(Source::signal, kNoWorker));
    watch(agent_.stop_event_.number(), tag(Source::stop, kNoWorker));
    for (const auto& plan : agent_.options_.workers) start(plan);
    auto next_look = Clock::now() + agent_.options_.look;
    while (!all_gone()) {
      wait_until(act_on_policy(next_look));
      if (Clock::now() < next_look) continue;
      look_at_workers();
      next_look = Clock::now() + agent_.options_.look;
    }
    return outcome();
  }

 private:
  void watch(int descriptor, std::uint64_t about) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = about}};
    if (::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      throw SystemError(fmt::format("cannot watch descriptor {}", descriptor), errno);
    }
  }

  void ignore(int descriptor) { ::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, descriptor, nullptr); }

  void start(const WorkerPlan& plan) {
    const auto index = static_cast<std::uint32_t>(workers_.size());
    auto& worker = *workers_.emplace_back(std::make_unique<Worker>(agent_.options_, plan, clock_));
    watch(worker.supervisor().socket(), tag(Source::news, index));
    watch(worker.supervisor().process(), tag(Source::supervisor, index));
    watch(worker.supervisor().standard_output.number(), tag(Source::output, index));
    watch(worker.supervisor().standard_error.number(), tag(Source::error, index));
  }

  [[nodiscard]] bool all_gone() const {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& worker) { return worker->is_gone(); });
  }

  // Sends SIGTERM or kills if it is due. Returns when to check again, `latest` or earlier.
  Clock::time_point act_on_policy(Clock::time_point latest) {
    const auto now = Clock::now();
    auto limits = agent_.options_.limits;
    if (facts_.failed && agent_.hooks_.have_met && !agent_.hooks_.have_met()) limits.report = {};
    const auto decision = decide_stop(facts_, limits, now);
    if (decision.action == StopAction::terminate) {
      for (auto& worker : workers_) worker->send(SIGTERM, now, true);
      facts_.told = now;
    } else if (decision.action == StopAction::kill) {
      for (auto& worker : workers_) worker->kill_all(now);
      facts_.killed = now;
    } else if (decision.action == StopAction::force) {
      force_end();
      facts_.forced = true;
    }
    return std::min(latest, decision.look_again.value_or(latest));
  }

  // A worker that still exists two seconds after SIGKILL has a supervisor that does not act.
  void force_end() {
    for (auto& worker : workers_) {
      if (worker->is_gone()) continue;
      agent_.console_.notice(
          fmt::format("the supervisor process {} of rank {} does not answer (it may be stopped); "
                      "the launcher kills its processes",
                      worker->supervisor().pid(), worker->outcome().rank));
      worker->supervisor().force();
    }
  }

  void wait_until(Clock::time_point time) {
    std::array<epoll_event, 64> events{};
    const int count = ::epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()),
                                   Deadline(time).poll_milliseconds());
    if (count < 0 && errno != EINTR) throw SystemError("cannot wait for workers", errno);
    for (int i = 0; i < count; ++i) {
      const auto about = events[static_cast<std::size_t>(i)].data.u64;
      attend(static_cast<Source>(about & 0xffffffffu), static_cast<std::uint32_t>(about >> 32));
    }
  }

  void attend(Source source, std::uint32_t index) {
    if (source == Source::signal) return relay_signals();
    if (source == Source::stop) return obey_stop();
    Worker& worker = *workers_[index];
    switch (source) {
      case Source::output:
        worker.read(OutputStream::standard_output, buffer_, agent_.console_);
        break;
      case Source::error:
        worker.read(OutputStream::standard_error, buffer_, agent_.console_);
        break;
      case Source::news:
        if (worker.receive_news()) record_end(worker);
        break;
      default:
        collect(worker);
        break;
    }
  }

  void relay_signals() {
    while (const auto signal = agent_.relay_.try_receive()) {
      const bool to_end = *signal != SIGUSR1 && *signal != SIGUSR2;
      const auto now = Clock::now();
      if (*signal == SIGINT && signal_ != 0) {
        facts_.impatient = true;
        continue;
      }
      for (auto& worker : workers_) worker->send(*signal, now, to_end);
      if (!to_end) continue;
      if (signal_ == 0) {
        signal_ = *signal;
        agent_.console_.notice(
            fmt::format("{} is forwarded to the ranks; those that still run in {} s are killed{}",
                        signal_name(*signal),
                        std::chrono::duration<double>(agent_.options_.limits.grace).count(),
                        *signal == SIGINT ? ", and at once on the next Ctrl-C" : ""));
      }
      if (!facts_.told) facts_.told = now;
    }
  }

  void obey_stop() {
    ignore(agent_.stop_event_.number());
    stopped_ = Clock::now();
    if (!facts_.failed) facts_.failed = stopped_;
  }

  void record_end(Worker& worker) {
    worker.drain(buffer_, agent_.console_);
    if (worker.outcome().failed() && !facts_.failed) facts_.failed = Clock::now();
    if (agent_.hooks_.rank_ended) agent_.hooks_.rank_ended(worker.outcome());
  }

  void collect(Worker& worker) {
    const bool had_ended = worker.has_ended();
    if (!worker.collect(buffer_, agent_.console_)) return;
    ignore(worker.supervisor().socket());
    ignore(worker.supervisor().process());
    if (!had_ended) record_end(worker);
  }

  void look_at_workers() {
    for (auto& worker : workers_) {
      worker->flush_log();
      if (worker->look_at_supervisor() && worker->is_supervisor_stopped()) {
        agent_.console_.notice(fmt::format(
            "the supervisor process {0} of rank {1} is stopped and forwards no signals; "
            "`kill -CONT {0}` continues it",
            worker->supervisor().pid(), worker->outcome().rank));
      }
      if (!worker->look()) continue;
      const auto& outcome = worker->outcome();
      if (worker->is_stopped()) {
        agent_.console_.notice(
            fmt::format("rank {} on {} is stopped (process {}, by a signal or a debugger); the "
                        "other ranks wait for it; `kill -CONT {}` continues it",
                        outcome.rank, outcome.host, outcome.pid, outcome.pid));
      } else {
        agent_.console_.notice(fmt::format("rank {} on {} continues (process {})", outcome.rank,
                                           outcome.host, outcome.pid));
      }
      if (agent_.hooks_.rank_stopped) {
        agent_.hooks_.rank_stopped(outcome.rank, worker->is_stopped());
      }
    }
  }

  RoundOutcome outcome() {
    RoundOutcome result;
    for (auto& worker : workers_) result.ranks.push_back(std::move(worker->outcome()));
    result.signal = signal_;
    result.lasted =
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - clock_.steady);
    {
      const std::lock_guard lock(agent_.mutex_);
      result.stop_reason = agent_.stop_reason_;
    }
    const auto culprit = find_culprit(result.ranks);
    result.cause = cause_of(result, culprit);
    if (culprit) explain(result.ranks[*culprit]);
    return result;
  }

  [[nodiscard]] RunCause cause_of(const RoundOutcome& result,
                                  std::optional<std::size_t> culprit) const {
    const bool ended_well = std::none_of(result.ranks.begin(), result.ranks.end(),
                                         [](const RankOutcome& rank) { return rank.failed(); });
    if (ended_well && !stopped_) return RunCause::finished;
    // A rank that failed here after a failure on another node is a consequence of it.
    if (stopped_ && !(culprit && result.ranks[*culprit].ended < clock_.at(*stopped_))) {
      return RunCause::peer_node;
    }
    if (!culprit) return signal_ != 0 ? RunCause::signal : RunCause::rank_failed;
    const auto& failure = result.ranks[*culprit].start_failure;
    if (!failure) return RunCause::rank_failed;
    if (failure->action != StartFailure::Action::execute) return RunCause::environment;
    return failure->error_number == ENOENT ? RunCause::not_found : RunCause::not_executable;
  }

  static void explain(RankOutcome& rank) {
    const auto record = parse_crash_record(rank.crash_record);
    if (record) rank.stack = explain_crash(*record, Deadline::after(kSymbolLimit));
  }

  Agent& agent_;
  RoundClock clock_;
  std::vector<char> buffer_;
  FileDescriptor epoll_;
  std::vector<std::unique_ptr<Worker>> workers_;
  StopFacts facts_;
  int signal_ = 0;                            // the first signal that ends the round
  std::optional<Clock::time_point> stopped_;  // when Agent::request_stop took effect
};

Agent::Agent(AgentOptions options, const SignalRelay& relay, Console& console, AgentHooks hooks)
    : options_(std::move(options)),
      relay_(relay),
      console_(console),
      hooks_(std::move(hooks)),
      stop_event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (options_.command.empty()) throw UsageError("no program to run was given: name one");
  if (options_.workers.empty()) throw UsageError("0 ranks to run were given: give at least 1");
  if (!stop_event_) throw SystemError("cannot create an eventfd", errno);
}

RoundOutcome Agent::run() { return Round(*this).run(); }

void Agent::request_stop(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_reason_.empty()) stop_reason_ = std::move(reason);
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(stop_event_.number(), &one, sizeof(one));
}

}  // namespace lockstep
