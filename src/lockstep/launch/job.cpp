#include "lockstep/launch/job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/launch/agent.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/end_record.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/metrics_listener.h"
#include "lockstep/launch/nodes.h"
#include "lockstep/launch/rank_list.h"
#include "lockstep/launch/rank_metrics.h"
#include "lockstep/launch/restart_policy.h"
#include "lockstep/launch/run_folder.h"
#include "lockstep/launch/signal_relay.h"
#include "lockstep/machine/core_plan.h"
#include "lockstep/machine/hidden_sve.h"
#include "lockstep/machine/machine.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/trace/run_pages.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr std::chrono::seconds kConsoleLimit{5};

std::string this_host() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

// The width of the terminal that shows live lines; 0 without one.
int terminal_columns(const Environment& environment) {
  winsize size{};
  if (::isatty(STDERR_FILENO) != 1 || environment.find("TERM") == "dumb") return 0;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

Listener listen(const std::string& host, const std::optional<PortRange>& ports) {
  return ports ? Listener::tcp(host, *ports) : Listener::tcp(host);
}

// A port that is free now, for the program's own use of MASTER_PORT. Another process may use it
// first; no launcher can prevent that.
std::uint16_t free_port(const std::string& host, const std::optional<PortRange>& ports) {
  return listen(host, ports).endpoint().port;
}

// Prints the report. Failures are ignored: the exit code of a job must not depend on standard
// error.
void print_last(std::string_view text) {
  const auto deadline = Deadline::after(kConsoleLimit);
  while (!text.empty()) {
    const auto count = ::write(STDERR_FILENO, text.data(), text.size());
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
    if (count >= 0 || errno == EINTR) continue;
    pollfd room{STDERR_FILENO, POLLOUT, 0};
    if (errno != EAGAIN || deadline.expired() ||
        ::poll(&room, 1, deadline.poll_milliseconds()) <= 0) {
      return;
    }
  }
}

// Before the console exists: it needs the number of all ranks.
void print_notice(const std::string& text) { print_last(fmt::format("lockstep | {}\n", text)); }

// The state of a job that outlives its rounds, and the loop over the rounds.
class Job {
 public:
  Job(const JobOptions& options, const Environment& environment);

  int run();

 private:
  void meet_nodes();
  void serve_metrics();
  [[nodiscard]] std::unique_ptr<Console> make_console() const;
  [[nodiscard]] AgentOptions agent_options(int round, const RoundAddress& address,
                                           const FileDescriptor& secret) const;
  RoundOutcome run_round(int round);
  [[nodiscard]] std::vector<RankOutcome> all_ranks(RoundOutcome& outcome, int round);
  [[nodiscard]] bool restarts_after(const RoundOutcome& outcome,
                                    const std::vector<RankOutcome>& ranks, int round);
  int finish(const RoundOutcome& outcome, const std::vector<RankOutcome>& ranks, int restarts);

  const JobOptions& options_;
  const Environment& environment_;
  const system_clock::time_point started_ = system_clock::now();
  // The launcher needs six descriptors per rank, and one more while it runs. Ranks get the old
  // limit.
  const std::uint64_t descriptor_limit_ = raise_descriptor_limit();
  const std::string host_ = this_host();
  const Machine machine_ = describe_machine(environment_);
  std::string job_ = random_token();
  std::optional<RunFolder> folder_;  // set in the constructor
  Secret secret_;
  SignalRelay relay_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<RunPages> pages_;
  std::optional<MetricsListener> metrics_;
  // The agent of the last round. It outlives nodes_, whose watcher may still call it.
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Nodes> nodes_;  // null for a job on one node
  const int columns_ = terminal_columns(environment_);
  int size_;
  int first_rank_ = 0;
  int immediate_crashes_ = 0;
};

std::string folder_of(const JobOptions& options, const std::string& token) {
  if (!options.run_dir.empty()) return options.run_dir;
  return "runs/" + run_name(options.command.front(), system_clock::now(), token);
}

Secret secret_of(const JobOptions& options, const Environment& environment) {
  if (options.num_nodes == 1) return Secret::random();
  return Secret::create_or_read_file(options.secret_file.empty() ? default_secret_file(environment)
                                                                 : options.secret_file);
}

Job::Job(const JobOptions& options, const Environment& environment)
    : options_(options),
      environment_(environment),
      secret_(secret_of(options, environment)),
      size_(options.num_ranks) {
  const auto folder = folder_of(options, job_);
  // After the nodes have met, so that a node that cannot create its folder ends the job on all.
  if (options.num_nodes > 1) meet_nodes();
  folder_.emplace(RunFolder::create(folder));
  console_ = make_console();
  pages_ = std::make_unique<RunPages>(size_, fmt::format("{}", fmt::join(options.command, " ")));
  try {
    pages_->link(folder_->pages_path());
  } catch (const SystemError& error) {  // a file system without links; everything else works
    console_->notice(fmt::format("`lockstep top` cannot show this run: {}", error.what()));
  }
  if (options.metrics_port) serve_metrics();
}

void Job::serve_metrics() {
  const auto& folder = options_.metrics_folder.empty() ? folder_->path() : options_.metrics_folder;
  metrics_.emplace(*options_.metrics_port,
                   [this, folder] { return job_metrics(pages_->state(), folder); });
  console_->notice(fmt::format("metrics at http://127.0.0.1:{}/metrics", metrics_->port()));
}

void Job::meet_nodes() {
  nodes_ = std::make_unique<Nodes>(NodesOptions{.rendezvous = *options_.rendezvous,
                                                .node = options_.node,
                                                .num_nodes = options_.num_nodes,
                                                .local_size = options_.num_ranks,
                                                .job = job_,
                                                .command = options_.command,
                                                .max_restarts = options_.max_restarts,
                                                .notice = print_notice},
                                   secret_, Deadline::after(options_.timeout));
  job_ = nodes_->job();
  size_ = nodes_->size();
  first_rank_ = nodes_->first_rank();
}

std::unique_ptr<Console> Job::make_console() const {
  ConsoleOptions console;
  console.size = size_;
  console.local_size = options_.num_ranks;
  console.node = options_.node;
  console.num_nodes = options_.num_nodes;
  console.prefix = size_ > 1 && !options_.speaks_for_all;
  if (options_.speaks_for_all) console.show_ranks = {0};
  console.live = columns_ > 0;
  if (!options_.show_ranks.empty())
    console.show_ranks = parse_rank_list(options_.show_ranks, size_);
  console.color_output = wants_color(options_.color, environment_, ::isatty(STDOUT_FILENO) == 1);
  console.color_error = wants_color(options_.color, environment_, ::isatty(STDERR_FILENO) == 1);
  return std::make_unique<Console>(console);
}

AgentOptions Job::agent_options(int round, const RoundAddress& address,
                                const FileDescriptor& secret) const {
  const auto shares = plan_cores(machine_.cpu, options_.num_ranks);
  AgentOptions agent;
  agent.command = options_.command;
  agent.limits.grace = options_.grace;
  agent.host = host_;
  agent.logs = folder_->logs_path();
  agent.restarts = round;
  agent.secret = secret.number();
  agent.pages = pages_.get();
  agent.descriptor_limit = descriptor_limit_;
  for (int local = 0; local < options_.num_ranks; ++local) {
    const auto& share = shares[static_cast<std::size_t>(local)];
    WorkerVariables variables;
    variables.identity = {.rank = first_rank_ + local,
                          .size = size_,
                          .local_rank = local,
                          .local_size = options_.num_ranks,
                          .node = options_.node,
                          .num_nodes = options_.num_nodes};
    variables.master_address = address.store.host;
    variables.master_port = address.master_port;
    variables.run_id = job_;
    variables.restarts = round;
    variables.max_restarts = options_.max_restarts;
    variables.threads = share.threads;
    variables.extra = {{"LOCKSTEP_STORE", address.store.to_string()},
                       {"LOCKSTEP_JOB", job_},
                       {"LOCKSTEP_ROUND", std::to_string(round)},
                       {"LOCKSTEP_RUN_DIR", folder_->path()}};
    for (auto& each : variables_of(options_.network)) variables.extra.push_back(std::move(each));
    const auto plain = plain_processor_variable();
    if (machine_.hides_sve && !environment_.find(plain.first)) variables.extra.push_back(plain);
    if (columns_ > 0) {
      variables.extra.emplace_back("LOCKSTEP_LIVE_COLUMNS", std::to_string(columns_));
    }
    agent.workers.push_back({.identity = variables.identity,
                             .environment = worker_environment(environment_, variables),
                             .processors = options_.pin ? share.processors : std::vector<int>{}});
  }
  return agent;
}

RoundOutcome Job::run_round(int round) {
  // Every round has its own server, so that a rank of an earlier round cannot join.
  std::unique_ptr<StoreServer> server;
  std::optional<RoundAddress> address;
  if (options_.node == 0) {
    const std::string host = nodes_ ? options_.rendezvous->host : "127.0.0.1";
    server =
        std::make_unique<StoreServer>(listen(host, options_.network.ports), secret_,
                                      HandshakeContext{job_, static_cast<std::uint64_t>(round)});
    address = RoundAddress{server->endpoint(), free_port(host, options_.network.ports)};
  }
  if (nodes_) address = nodes_->share_address(round, address);
  if (round == 0 && options_.announce) {
    console_->notice(
        fmt::format("{} rank{}{} of {}, rendezvous {}, logs in {}", size_, size_ == 1 ? "" : "s",
                    nodes_ ? fmt::format(" on {} nodes", options_.num_nodes) : "",
                    options_.command.front(), address->store.to_string(), folder_->path()));
  }

  pages_->begin_round(round);
  const auto secret = secret_.to_descriptor();
  AgentHooks hooks;
  if (!nodes_) hooks.have_met = [&server] { return server->has_had_members(); };
  if (nodes_) {
    hooks.rank_ended = [this, round](const RankOutcome& rank) {
      if (!rank.failed() || rank.told_to_end) return;
      nodes_->announce_failure(round, fmt::format("rank {} failed on {}", rank.rank, rank.host));
    };
  }
  agent_ =
      std::make_unique<Agent>(agent_options(round, *address, secret), relay_, *console_, hooks);
  if (nodes_) {
    nodes_->watch(round, [this](std::string reason) { agent_->request_stop(std::move(reason)); });
    nodes_->share_pages(round, *pages_);
  }
  auto outcome = agent_->run();
  if (!nodes_ && size_ > 1 && outcome.cause == RunCause::finished && !server->has_had_members()) {
    console_->notice(
        fmt::format("no rank called lockstep::init(): {} independent processes ran", size_));
  }
  return outcome;
}

// The ranks of the report: the local ones, and the culprit of each other node. Sets the outcome's
// cause to that of all nodes together.
std::vector<RankOutcome> Job::all_ranks(RoundOutcome& outcome, int round) {
  auto ranks = outcome.ranks;
  if (!nodes_) return ranks;
  NodeReport mine{.cause = outcome.cause, .signal = outcome.signal, .reason = outcome.stop_reason};
  if (const auto culprit = find_culprit(ranks)) mine.culprit = ranks[*culprit];
  for (const auto& report : nodes_->gather(round, mine)) {
    const bool knows = report.cause != RunCause::finished && report.cause != RunCause::peer_node;
    if (knows && (outcome.cause == RunCause::finished || outcome.cause == RunCause::peer_node)) {
      outcome.cause = report.cause;
      outcome.signal = report.signal;
    }
    if (report.culprit && report.culprit->node != options_.node) ranks.push_back(*report.culprit);
  }
  return ranks;
}

bool Job::restarts_after(const RoundOutcome& outcome, const std::vector<RankOutcome>& ranks,
                         int round) {
  const auto culprit = find_culprit(ranks);
  const auto exit_code = culprit ? ranks[*culprit].status->exit_code() : std::nullopt;
  const auto decision =
      decide_restart({.cause = outcome.cause,
                      .is_final = options_.final_code && exit_code == options_.final_code,
                      .exit_code = exit_code,
                      .restarts = round,
                      .max_restarts = options_.max_restarts,
                      .immediate_crashes = immediate_crashes_,
                      .lasted = outcome.lasted});
  immediate_crashes_ = decision.immediate_crashes;
  auto pause = decision.restart ? std::optional(decision.pause) : std::nullopt;
  if (nodes_) pause = nodes_->agree_on_restart(round, pause);
  if (!pause) return false;
  console_->notice(fmt::format("restart {} of {} in {} ms: {}", round + 1, options_.max_restarts,
                               pause->count(), decision.reason));
  // A signal ends the pause and the job.
  pollfd signal{.fd = relay_.descriptor(), .events = POLLIN, .revents = 0};
  return ::poll(&signal, 1, Deadline::after(*pause).poll_milliseconds()) == 0;
}

int Job::run() {
  if (options_.opened) options_.opened(folder_->path());
  for (int round = 0;; ++round) {
    auto outcome = run_round(round);
    std::vector<RankOutcome> ranks = outcome.ranks;
    bool again = false;
    try {
      ranks = all_ranks(outcome, round);
      again = restarts_after(outcome, ranks, round);
    } catch (const Error& error) {  // the launcher of another node is lost: no agreement possible
      outcome.cause = RunCause::environment;
      if (outcome.stop_reason.empty()) outcome.stop_reason = error.what();
    }
    if (!again) return finish(outcome, ranks, round);
  }
}

int Job::finish(const RoundOutcome& outcome, const std::vector<RankOutcome>& ranks, int restarts) {
  ExitFacts exit{.cause = outcome.cause, .signal = outcome.signal};
  if (const auto culprit = find_culprit(ranks)) exit.culprit = ranks[*culprit].status;
  const int code = launcher_exit_code(exit);
  (void)console_->finish(Deadline::after(kConsoleLimit));
  const auto block = failure_block(ranks, {.cause = outcome.cause,
                                           .signal = outcome.signal,
                                           .program = options_.command.front(),
                                           .run_folder = folder_->path(),
                                           .reason = outcome.stop_reason,
                                           .restarts = restarts});
  // The report for a person comes first: a full disk is a common reason for a failed run.
  print_last(block);
  try {
    write_whole(folder_->end_record_path(),
                end_record(ranks, {.cause = outcome.cause,
                                   .exit_code = code,
                                   .signal = outcome.signal,
                                   .restarts = restarts,
                                   .max_restarts = options_.max_restarts,
                                   .reason = outcome.stop_reason,
                                   .started = started_,
                                   .ended = system_clock::now()}));
  } catch (const Error& error) {
    print_last(fmt::format("lockstep | no end.json: {}\n", error.what()));
  }
  try {
    pages_->leave(folder_->pages_path());
  } catch (const Error&) {  // `lockstep top` says that there is no last state
  }
  return code;
}

}  // namespace

int run_job(const JobOptions& options, const Environment& environment) {
  if (options.command.empty()) throw UsageError("no program to run was given: name one");
  if (options.num_ranks < 1) {
    throw UsageError(
        fmt::format("a job on {} ranks is invalid: give at least 1", options.num_ranks));
  }
  if (options.num_nodes > 1 && !options.rendezvous) {
    throw UsageError(
        fmt::format("{} nodes need a rendezvous: give --rendezvous HOST:PORT", options.num_nodes));
  }
  return Job(options, environment).run();
}

std::string default_secret_file(const Environment& environment) {
  if (const auto file = environment.find("LOCKSTEP_SECRET_FILE")) return *file;
  if (const auto config = environment.find("XDG_CONFIG_HOME")) return *config + "/lockstep/secret";
  if (const auto home = environment.find("HOME")) return *home + "/.config/lockstep/secret";
  throw UsageError(
      "several nodes need a shared secret, and HOME is not set: set LOCKSTEP_SECRET_FILE to a file "
      "of mode 0600 that all nodes can read");
}

}  // namespace lockstep
