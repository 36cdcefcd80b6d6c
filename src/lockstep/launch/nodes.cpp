#include "lockstep/launch/nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <random>
#include <utility>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/version.h"
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
std::string node_key(int round, int node) { return fmt::format("round/{}/node/{}", round, node); }

std::string to_text(const NodeReport& report) {
  json text{{"cause", static_cast<int>(report.cause)},
            {"signal", report.signal},
            {"reason", report.reason}};
  if (const auto& rank = report.culprit) {
    text["culprit"] = {{"rank", rank->rank},
                       {"node", rank->node},
                       {"host", rank->host},
                       {"status", rank->status ? rank->status->raw() : 0},
                       {"ended", rank->ended.time_since_epoch().count()},
                       {"uncaught", rank->uncaught},
                       {"lines", rank->last_lines},
                       {"stack", rank->stack},
                       {"log", rank->log_path}};
  }
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeReport to_report(const std::string& text) {
  const auto parsed = json::parse(text);
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
    rank.ended =
        RankOutcome::Time(RankOutcome::Time::duration(from.at("ended").get<std::int64_t>()));
    rank.uncaught = from.at("uncaught");
    rank.last_lines = from.at("lines").get<std::vector<std::string>>();
    rank.stack = from.at("stack").get<std::vector<std::string>>();
    rank.log_path = from.at("log");
    report.culprit = std::move(rank);
  }
  return report;
}

// The options that are equal for all launchers of one job. The number of ranks may differ.
std::string start_of(const NodesOptions& options) {
  return json{{"command", options.command},
              {"nodes", options.num_nodes},
              {"max_restarts", options.max_restarts},
              {"version", kVersion}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
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

}  // namespace

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
    auto look = Store::connect(options.rendezvous, secret, kContext, visitor, deadline);
    expect_same_start(options, look.get_text("start", deadline, Member{MemberKind::node, 0}));
  }
  const Member self{MemberKind::node, options.node};
  store_ = Store::connect(options.rendezvous, secret, kContext, self, deadline);
  if (options.node == 0) store_->set("start", start_of(options), deadline);
  const Member watcher{MemberKind::node, options.num_nodes + options.node};
  watching_ = Store::connect(options.rendezvous, secret, kContext, watcher, deadline);

  if (options.node == 0) store_->set("job", options.job, deadline);
  store_->set(fmt::format("nodes/{}", options.node), std::to_string(options.local_size), deadline);
  store_->barrier("nodes", launchers(), deadline);
  job_ = store_->get_text("job", deadline);
  for (int node = 0; node < options.num_nodes; ++node) {
    if (node == options.node) first_rank_ = size_;
    const auto text = store_->get_text(fmt::format("nodes/{}", node), deadline);
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
    return {Endpoint::parse(text.substr(0, space)),
            static_cast<std::uint16_t>(std::stoi(text.substr(space + 1)))};
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

std::vector<NodeReport> Nodes::gather(int round, const NodeReport& mine) {
  if (teller_.joinable()) teller_.join();
  store_->set(node_key(round, options_.node), to_text(mine), answer());
  store_->barrier(key(round, "end"), launchers(), end_of_round());
  end_round(round, "");  // a normal end: releases the watchers
  std::vector<NodeReport> reports;
  for (int node = 0; node < options_.num_nodes; ++node) {
    const auto text = store_->get_text(node_key(round, node), answer());
    reports.push_back(read_peer_text("a node's report", [&] { return to_report(text); }));
  }
  if (watcher_.joinable()) watcher_.join();
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
