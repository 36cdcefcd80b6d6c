#include "lockstep/launch/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <utility>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/version.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/listener.h"
#include "lockstep/rendezvous/peer_text.h"

namespace lockstep {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// Launchers meet before the job has a name; only the secret authenticates them.
const HandshakeContext kContext{"lockstep-nodes", 0};
// A round lasts as long as the training. The loss of a launcher is detected at once, independent of
// this limit.
constexpr std::chrono::hours kRoundLimit{24 * 365};
constexpr std::chrono::seconds kAnswerLimit{60};

Deadline answer() { return Deadline::after(kAnswerLimit); }
Deadline end_of_round() { return Deadline::after(kRoundLimit); }

std::string key(int round, std::string_view what) {
  return fmt::format("round/{}/{}", round, what);
}
std::string pages_key(int round, int node) { return fmt::format("round/{}/pages/{}", round, node); }
std::string node_key(int round, int node) { return fmt::format("round/{}/node/{}", round, node); }

json to_json(const NodeReport& report) {
  json text{{"cause", static_cast<int>(report.cause)},
            {"signal", report.signal},
            {"reason", report.reason}};
  if (const auto& rank = report.culprit) {
    text["culprit"] = {{"rank", rank->rank},
                       {"node", rank->node},
                       {"host", rank->host},
                       {"status", rank->status ? rank->status->raw() : 0},
                       {"started", rank->started.time_since_epoch().count()},
                       {"ended", rank->ended.time_since_epoch().count()},
                       {"uncaught", rank->uncaught},
                       {"where", rank->where},
                       {"lines", rank->last_lines},
                       {"stack", rank->stack},
                       {"log", rank->log_path}};
  }
  return text;
}

std::string to_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeReport to_report(const json& parsed) {
  NodeReport report;
  report.cause = static_cast<RunCause>(parsed.at("cause").get<int>());
  report.signal = parsed.at("signal");
  report.reason = parsed.at("reason");
  if (parsed.contains("culprit")) {
    const auto& from = parsed.at("culprit");
    RankOutcome rank;
    rank.rank = from.at("rank");
    rank.node = from.at("node");
    rank.host = from.at("host");
    rank.status = ExitStatus(from.at("status").get<int>());
    const auto time = [&](const char* name) {
      return RankOutcome::Time(RankOutcome::Time::duration(from.at(name).get<std::int64_t>()));
    };
    rank.started = time("started");
    rank.ended = time("ended");
    rank.uncaught = from.at("uncaught");
    rank.where = from.at("where");
    rank.last_lines = from.at("lines").get<std::vector<std::string>>();
    rank.stack = from.at("stack").get<std::vector<std::string>>();
    rank.log_path = from.at("log");
    report.culprit = std::move(rank);
  }
  return report;
}

// The options that are equal for all launchers of one job. The number of ranks may differ.
std::string start_of(const NodesOptions& options) {
  return to_text(json{{"command", options.command},
                      {"nodes", options.num_nodes},
                      {"max_restarts", options.max_restarts},
                      {"version", kVersion}});
}

std::string in_words(const std::string& start) {
  return read_peer_text("the description of the job by node 0", [&] {
    const auto parsed = json::parse(start);
    return fmt::format("`{}` on {} nodes, {} restarts, lockstep {}",
                       fmt::join(parsed.at("command").get<std::vector<std::string>>(), " "),
                       parsed.at("nodes").get<int>(), parsed.at("max_restarts").get<int>(),
                       parsed.at("version").get<std::string>());
  });
}

void expect_same_start(const NodesOptions& options, const std::string& theirs) {
  const auto own = start_of(options);
  if (own == theirs) return;
  throw UsageError(
      fmt::format("this launcher does not belong to the job of node 0 at {}: node 0 runs {}; node "
                  "{} runs {}. End launchers of earlier runs, and start all nodes with the same "
                  "command",
                  options.rendezvous.to_string(), in_words(theirs), options.node, in_words(own)));
}

// What a person checks on the machine of a node that does not arrive.
std::string remedy(const NodesOptions& options) {
  const auto& [host, port] = options.rendezvous;
  return fmt::format(
      "Check on that machine: the same command runs there, with its own --node-rank; `getent hosts "
      "{}` gives the address of node 0, not a loopback address; no firewall blocks TCP port {} and "
      "the ports of the ranks (--ports limits these); ~/.config/lockstep/secret, or the file of "
      "--secret-file, is equal on all nodes",
      host, port);
}

}  // namespace

// Retries until the deadline: node 0 may not have started yet.
Store Nodes::connect(const Member& member, const Secret& secret, Deadline deadline) const {
  if (server_) {  // its own, which has this long also if the deadline is short
    return Store::connect(options_.rendezvous, secret, kContext, member,
                          std::max(deadline, answer()));
  }
  while (true) {
    const auto slice = std::min(deadline, Deadline::after(options_.notice_every));
    try {
      return Store::connect(options_.rendezvous, secret, kContext, member, slice);
    } catch (const SystemError& error) {
      if (deadline.expired()) {
        throw PeerError(
            0, fmt::format("node {} cannot reach node 0 at {} ({}). {}", options_.node,
                           options_.rendezvous.to_string(), error.what(), remedy(options_)));
      }
      if (options_.notice && Deadline::after(options_.notice_every / 10) < deadline) {
        options_.notice(fmt::format("node {} waits for node 0 at {}: {}", options_.node,
                                    options_.rendezvous.to_string(), error.what()));
      }
    }
  }
}

// Returns when every node has arrived; or when one is lost, which the barrier reports.
void Nodes::wait_for_nodes(Deadline deadline) {
  constexpr std::chrono::seconds kLook{1};  // between two looks for lost nodes
  std::vector<std::string> keys;
  for (int node = 0; node < options_.num_nodes; ++node)
    keys.push_back(fmt::format("nodes/{}", node));
  auto notice_at = Deadline::after(options_.notice_every);
  while (true) {
    try {
      return store_->wait(keys, std::min({deadline, notice_at, Deadline::after(kLook)}));
    } catch (const SystemError& error) {
      if (error.error_number() != ETIMEDOUT) throw;
    }
    for (const auto& [member, state] : store_->members(answer())) {
      if (member.kind == MemberKind::node && state != MemberState::connected) return;
    }
    if (!deadline.expired() && !notice_at.expired()) continue;
    notice_at = Deadline::after(options_.notice_every);
    std::vector<Member> missing;
    for (const auto& launcher : launchers()) {
      if (!store_->try_get(keys[static_cast<std::size_t>(launcher.number)], answer())) {
        missing.push_back(launcher);
      }
    }
    if (missing.empty()) return;
    const auto where = server_ ? server_->where() : options_.rendezvous.to_string();
    if (deadline.expired()) {
      throw PeerError(missing.front().number,
                      fmt::format("{} of {} did not arrive at {} in time. {}", to_string(missing),
                                  options_.num_nodes, where, remedy(options_)));
    }
    if (!options_.notice) continue;
    const bool is_local = server_ && is_loopback(server_->endpoint().host);
    options_.notice(fmt::format("waiting for {} of {} at {}{}", to_string(missing),
                                options_.num_nodes, where,
                                is_local ? ", which no other machine can reach" : ""));
  }
}

Nodes::Nodes(const NodesOptions& options, const Secret& secret, Deadline deadline)
    : options_(options) {
  if (options.node == 0) {
    server_ = std::make_unique<StoreServer>(
        Listener::tcp(options.rendezvous.host, options.rendezvous.port), secret, kContext);
  }
  if (options.node != 0) {
    // Under a random rank number: if a launcher of another job connected as a node, the true node
    // would be refused, and the job would lose that node when this launcher leaves.
    const Member visitor{MemberKind::rank,
                         static_cast<int>(std::random_device{}() % unsigned{kMaxMembers})};
    auto look = connect(visitor, secret, deadline);
    expect_same_start(options, look.get_text("start", deadline, Member{MemberKind::node, 0}));
  }
  const Member self{MemberKind::node, options.node};
  store_ = connect(self, secret, deadline);
  if (options.node == 0) store_->set("start", start_of(options), answer());
  const Member watcher{MemberKind::node, options.num_nodes + options.node};
  watching_ = connect(watcher, secret, deadline);
  const Member sharer{MemberKind::node, 2 * options.num_nodes + options.node};
  sharing_ = connect(sharer, secret, deadline);

  if (options.node == 0) store_->set("job", options.job, answer());
  store_->set(fmt::format("nodes/{}", options.node), std::to_string(options.local_size), answer());
  wait_for_nodes(deadline);
  store_->barrier("nodes", launchers(), std::max(deadline, answer()));
  job_ = store_->get_text("job", answer());
  for (int node = 0; node < options.num_nodes; ++node) {
    if (node == options.node) first_rank_ = size_;
    first_ranks_.push_back(size_);
    const auto text = store_->get_text(fmt::format("nodes/{}", node), answer());
    size_ += read_peer_text("the number of ranks of a node", [&] { return std::stoi(text); });
  }
}

Nodes::~Nodes() {
  // Without effect if the round ended normally; otherwise it releases the watchers.
  if (watcher_.joinable()) end_round(round_, fmt::format("node {} has ended", options_.node));
}

std::string Nodes::bound() const { return server_ ? server_->where() : ""; }

std::vector<Member> Nodes::launchers() const {
  std::vector<Member> members;
  for (int node = 0; node < options_.num_nodes; ++node) {
    members.push_back({MemberKind::node, node});
  }
  return members;
}

RoundAddress Nodes::share_address(int round, const std::optional<RoundAddress>& mine) {
  if (mine) {
    store_->set(key(round, "store"),
                fmt::format("{} {}", mine->store.to_string(), mine->master_port), answer());
    return *mine;
  }
  const auto text = store_->get_text(key(round, "store"), answer(), Member{MemberKind::node, 0});
  return read_peer_text("the address of a round", [&]() -> RoundAddress {
    const auto space = text.find(' ');
    auto store = Endpoint::parse(text.substr(0, space));
    store.host = rescope(store.host, options_.rendezvous.host);
    return {store, static_cast<std::uint16_t>(std::stoi(text.substr(space + 1)))};
  });
}

void Nodes::watch(int round, std::function<void(std::string)> stop) {
  round_ = round;
  const int neighbor = (options_.node + 1) % options_.num_nodes;
  watcher_ = std::jthread([this, round, neighbor, stop = std::move(stop)] {
    const AlternateSignalStack stack;
    std::string reason;
    try {
      reason = watching_->get_text(key(round, "stop"), end_of_round(),
                                   Member{MemberKind::node, neighbor});
    } catch (const PeerError&) {
      reason = fmt::format("the launcher of node {} is lost", neighbor);
      end_round(round, reason);
    } catch (const Error& error) {
      reason = fmt::format("the launcher of node 0 is lost: {}", error.what());
    }
    if (!reason.empty()) stop(reason);
  });
}

void Nodes::announce_failure(int round, std::string reason) {
  if (teller_.joinable()) return;  // one reason is enough
  teller_ = std::jthread([this, round, reason = std::move(reason)] {
    const AlternateSignalStack stack;
    end_round(round, reason);
  });
}

void Nodes::end_round(int round, const std::string& reason) noexcept {
  try {
    (void)store_->compare_exchange(key(round, "stop"), std::nullopt,
                                   std::as_bytes(std::span(reason)), answer());
  } catch (const Error&) {  // see the header
  }
}

void Nodes::share_pages(int round, RunPages& pages) {
  pages_ = &pages;
  sharer_ = std::jthread([this, round](const std::stop_token& stop) {
    const AlternateSignalStack stack;
    std::mutex mutex;
    std::condition_variable_any changed;
    // Every launcher reads the pages of all nodes: a longer interval bounds the server's work.
    const auto interval = milliseconds(1000 + 20 * options_.num_nodes);
    for (std::unique_lock lock(mutex); !stop.stop_requested();) {
      try {
        send_pages(round);
        receive_pages(round);
      } catch (const Error&) {  // the server is lost: the watcher ends the round
        return;
      }
      changed.wait_for(lock, stop, interval, [] { return false; });
    }
  });
}

void Nodes::send_pages(int round) {
  sharing_->set(pages_key(round, options_.node), pages_->copy_of(first_rank_, options_.local_size),
                answer());
}

void Nodes::receive_pages(int round) {
  for (int node = 0; node < options_.num_nodes; ++node) {
    if (node == options_.node) continue;
    const auto copy = sharing_->try_get(pages_key(round, node), answer());
    if (!copy) continue;
    pages_->mirror(first_ranks_[static_cast<std::size_t>(node)],
                   {reinterpret_cast<const char*>(copy->data()), copy->size()});
  }
}

// At node 0. Most nodes of a large job know nothing: their ranks were told to end.
std::vector<NodeReport> Nodes::collect_reports(int round) {
  std::vector<NodeReport> reports;
  for (int node = 0; node < options_.num_nodes; ++node) {
    const auto text = store_->get_text(node_key(round, node), answer());
    auto report = read_peer_text("a node's report", [&] { return to_report(json::parse(text)); });
    const bool knows = report.cause != RunCause::finished && report.cause != RunCause::peer_node;
    if (knows || report.culprit) reports.push_back(std::move(report));
  }
  std::vector<RankOutcome> culprits;
  for (const auto& report : reports) {
    if (report.culprit) culprits.push_back(*report.culprit);
  }
  if (const auto first = find_culprit(culprits)) {
    const int node = culprits[*first].node;
    std::stable_partition(reports.begin(), reports.end(), [node](const NodeReport& report) {
      return report.culprit && report.culprit->node == node;
    });
  }
  if (reports.size() > kMostReports) reports.resize(kMostReports);
  return reports;
}

std::vector<NodeReport> Nodes::gather(int round, const NodeReport& mine) {
  if (teller_.joinable()) teller_.join();
  sharer_ = {};
  if (pages_ != nullptr) send_pages(round);  // the last state
  store_->set(node_key(round, options_.node), to_text(to_json(mine)), answer());
  store_->barrier(key(round, "end"), launchers(), end_of_round());
  end_round(round, "");  // a normal end: releases the watchers
  if (options_.node == 0) {
    auto list = json::array();
    for (const auto& report : collect_reports(round)) list.push_back(to_json(report));
    store_->set(key(round, "reports"), to_text(list), answer());
  }
  const auto text = store_->get_text(key(round, "reports"), answer(), Member{MemberKind::node, 0});
  auto reports = read_peer_text("the reports of the nodes", [&] {
    std::vector<NodeReport> read;
    for (const auto& each : json::parse(text)) read.push_back(to_report(each));
    return read;
  });
  if (watcher_.joinable()) watcher_.join();
  if (pages_ != nullptr) receive_pages(round);
  return reports;
}

std::optional<milliseconds> Nodes::agree_on_restart(int round,
                                                    const std::optional<milliseconds>& mine) {
  if (options_.node == 0) {
    store_->set(key(round, "next"), mine ? std::to_string(mine->count()) : "end", answer());
  }
  const auto text = store_->get_text(key(round, "next"), answer(), Member{MemberKind::node, 0});
  store_->barrier(key(round, "agreed"), launchers(),
                  answer());  // node 0 must not end its server before all have read the decision
  if (text == "end") return std::nullopt;
  return milliseconds(read_peer_text("a pause", [&] { return std::stoll(text); }));
}

}  // namespace lockstep
