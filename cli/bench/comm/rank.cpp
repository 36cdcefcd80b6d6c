// The ranks of lockstep's own backend: those that `lockstep bench comm` starts on this machine, and
// those of a launcher's job, which may be on several hosts.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string_view>
#include <vector>

#include "build_facts.h"
#include "cli/bench/comm/comm.h"
#include "cli/bench/comm/own_backend.h"
#include "cli/bench/comm/steps.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/launch/init.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::seconds kMeetingTime{60};

// What rank 0 must know of a rank.
struct RankFacts {
  std::string host;
  std::vector<int> processors;
  std::size_t last_level_cache = 0;
};

std::string key_of(int rank) { return fmt::format("bench comm/facts of {}", rank); }

RankFacts own_facts(const Environment& environment) {
  return {host_name(), allowed_processors(), describe_machine(environment).last_level_cache()};
}

// At rank 0.
std::vector<RankFacts> collect(const World& world, const RankFacts& own) {
  std::vector<RankFacts> facts{own};
  for (int rank = 1; rank < world.size(); ++rank) {
    const auto json = nlohmann::json::parse(world.store().get_text(
        key_of(rank), Deadline::after(kMeetingTime), Member{MemberKind::rank, rank}));
    facts.push_back({json.at(0).get<std::string>(), json.at(1).get<std::vector<int>>(),
                     json.at(2).get<std::size_t>()});
  }
  return facts;
}

// The report of rank 0, without figures.
CommReport plan_report(const World& world, const std::vector<RankFacts>& facts,
                       const BenchCommOptions& options, const Environment& environment) {
  CommReport report{.machine = describe_machine(environment),
                    .load = load_average(),
                    .rounds = rounds_of(options),
                    .build = kBuildType};
  report.hosts.resize(static_cast<std::size_t>(world.num_hosts()));
  std::set<int> processors;  // of the first host
  std::size_t cache = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto& of_rank = facts[static_cast<std::size_t>(rank)];
    auto& host = report.hosts[static_cast<std::size_t>(world.host_of(rank))];
    host.name = of_rank.host;
    host.ranks.push_back(rank);
    cache = std::max(cache, of_rank.last_level_cache);
    if (!world.same_host(0, rank)) continue;
    processors.insert(of_rank.processors.begin(), of_rank.processors.end());
  }
  report.machine.cpu = read_cpu_topology(std::vector<int>(processors.begin(), processors.end()));
  report.request = plan_request(options, world.size(), cache);
  report.request.on_one_host = world.num_hosts() == 1;
  for (const auto& of_rank : facts) report.request.processors.push_back(of_rank.processors);
  return report;
}

constexpr std::string_view kRequestKey = "bench comm/request";

// At the other ranks.
CommRequest receive_request(const World& world, const RankFacts& own) {
  auto& store = world.store();
  const auto deadline = Deadline::after(kMeetingTime);
  const nlohmann::json facts{own.host, own.processors, own.last_level_cache};
  store.set(key_of(world.rank()),
            facts.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), deadline);
  return request_from_text(store.get_text(kRequestKey, deadline, Member{MemberKind::rank, 0}),
                           "the request of rank 0");
}

}  // namespace

int run_bench_comm_in_job(const BenchCommOptions& options, const Environment& environment,
                          std::ostream& out) {
  if (!options.compare.empty()) {
    throw UsageError(
        "--compare starts its peers on this machine, but a launcher has started this process: omit "
        "--compare. benchmarks/hosts_benchmark of the source compares with Gloo and Open MPI "
        "between hosts");
  }
  const auto world = init();
  if (options.num_ranks > 0 && options.num_ranks != world.size()) {
    throw UsageError(fmt::format("-n {}, but the launcher has started {} ranks: omit -n",
                                 options.num_ranks, world.size()));
  }
  (void)plan_request(options, world.size(), 0);  // every rank refuses a case that does not fit
  const auto own = own_facts(environment);
  if (world.rank() != 0) {
    (void)measure_own(world, receive_request(world, own), rounds_of(options));
    return kSuccess;
  }
  auto report = plan_report(world, collect(world, own), options, environment);
  if (world.size() > 1) {
    world.store().set(kRequestKey, to_text(report.request), Deadline::after(kMeetingTime));
  }
  out << header_text(report) << std::flush;
  finish_report(report, {measure_own(world, report.request, report.rounds)}, options, out);
  return kSuccess;
}

int run_bench_comm_rank(const std::vector<std::string>& arguments, Streams streams) {
  try {
    if (arguments.size() != 2) {
      throw UsageError("`bench comm-rank` is started only by `lockstep bench comm`; use that");
    }
    const auto request = read_request(arguments[0]);
    const auto world = init();
    const auto answers = measure_own(world, request, 1);
    if (world.rank() == 0) write_answer(answers.front(), arguments[1]);
    return kSuccess;
  } catch (const Error& error) {
    streams.error << "lockstep bench comm: " << error.what() << '\n';
    return kFailure;
  }
}

}  // namespace lockstep::cli
