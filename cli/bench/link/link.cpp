#include "cli/bench/link/link.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>

#include "cli/bench/link/measure.h"
#include "cli/bench/link/options.h"
#include "cli/bench/link/pair_rounds.h"
#include "cli/bench/link/report.h"
#include "cli/scratch_folder.h"
#include "cli/sibling.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/init.h"
#include "lockstep/launch/job.h"
#include "lockstep/machine/cpu_topology.h"
#include "lockstep/machine/gpus.h"
#include "lockstep/rendezvous/group_registry.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kMeetingTime{60};

std::string key_of(std::string_view what, int number) {
  return fmt::format("bench link/{} {}", what, number);
}

std::string link_key(int first, int second) {
  return fmt::format("bench link/{}-{}", first, second);
}

// All processors, also those that this rank, which may be pinned, does not use.
CpuTopology whole_topology() {
  std::ifstream file("/sys/devices/system/cpu/online");
  std::string text;
  std::getline(file, text);
  const auto online = parse_cpu_list(text);
  return read_cpu_topology(online.empty() ? allowed_processors() : online);
}

// What rank 0 cannot see of the other hosts.
std::string own_host(const Environment& environment) {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  const auto topology = whole_topology();
  Json numa_nodes = Json::array();
  for (const auto& node : topology.nodes) {
    Json processors = Json::array();
    for (const auto& core : node.cores) {
      for (const int processor : core.processors) processors.push_back(processor);
    }
    numa_nodes.push_back(std::move(processors));
  }
  Json devices = Json::array();
  for (const auto& gpu : list_gpus(environment)) devices.push_back(gpu.name);
  const Json json{{"name", name.data()}, {"numa_nodes", numa_nodes}, {"devices", devices}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Measures the links of this rank, and publishes those of which it is the first one. Returns the
// congestion control.
std::string measure_links(World& world, const BenchLinkOptions& options) {
  auto& store = world.store();
  const auto& address = world.address_of(world.rank());
  const auto& ports = world.groups()->network_settings().ports;
  auto listener = ports ? Listener::tcp(address, *ports) : Listener::tcp(address);
  const auto meeting = [] { return Deadline::after(kMeetingTime); };
  store.set(key_of("endpoint of", world.rank()), listener.endpoint().to_string(), meeting());
  const auto members = all_ranks(world.size());
  const auto rounds = pair_rounds(world.size());
  const auto limit = kMeetingTime + 20 * options.time;
  std::string congestion;
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    store.barrier("bench link", members, Deadline::after(limit + kMeetingTime));
    const HandshakeContext context{"bench link", round};
    for (const auto& [first, second] : rounds[round]) {
      if (world.rank() != first && world.rank() != second) continue;
      const bool is_first = world.rank() == first;
      const auto deadline = Deadline::after(limit);
      const Member peer{MemberKind::rank, first};
      auto sockets = is_first ? accept_link(listener, world.secret(), context, deadline)
                              : connect_link(Endpoint::parse(store.get_text(
                                                 key_of("endpoint of", first), deadline, peer)),
                                             world.secret(), context, deadline);
      const auto figures = measure_link(sockets, is_first ? LinkSide::first : LinkSide::second,
                                        options.time, deadline);
      congestion = congestion_control(sockets.front());
      if (!is_first) continue;
      const Json json{figures.latency, figures.bandwidth, figures.back_bandwidth,
                      figures.striped_bandwidth, figures.retransmits};
      store.set(link_key(first, second), json.dump(), deadline);
    }
  }
  return congestion;
}

// At rank 0, after all ranks have measured.
Cluster collect(World& world) {
  const auto deadline = Deadline::after(kMeetingTime);
  Cluster cluster;
  cluster.hosts.resize(static_cast<std::size_t>(world.num_hosts()));
  for (int rank = 0; rank < world.size(); ++rank) {
    auto& host = cluster.hosts[static_cast<std::size_t>(world.host_of(rank))];
    host.ranks.push_back(rank);
    if (host.ranks.size() > 1) continue;
    const Member member{MemberKind::rank, rank};
    const auto json =
        Json::parse(world.store().get_text(key_of("host of", rank), deadline, member));
    host.name = json.at("name").get<std::string>();
    host.address = world.address_of(rank);
    host.numa_nodes = json.at("numa_nodes").get<std::vector<std::vector<int>>>();
    host.devices = json.at("devices").get<std::vector<std::string>>();
  }
  for (int first = 0; first < world.size(); ++first) {
    for (int second = first + 1; second < world.size(); ++second) {
      const Member member{MemberKind::rank, first};
      const auto json =
          Json::parse(world.store().get_text(link_key(first, second), deadline, member));
      const LinkFigures figures{.latency = json.at(0).get<double>(),
                                .bandwidth = json.at(1).get<double>(),
                                .back_bandwidth = json.at(2).get<double>(),
                                .stripes = kStripes,
                                .striped_bandwidth = json.at(3).get<double>(),
                                .retransmits = json.at(4).get<std::int64_t>()};
      const auto fastest =
          std::max({figures.bandwidth, figures.back_bandwidth, figures.striped_bandwidth});
      cluster.links.push_back({.first = first,
                               .second = second,
                               .link_class = link_class_of(fastest),
                               .measured = figures});
    }
  }
  return cluster;
}

int run_rank(const BenchLinkOptions& options, const Environment& environment, Streams streams) {
  auto world = init();
  if (world.size() < 2) throw UsageError("bench link needs two ranks or more");
  if (options.num_ranks > 0 && options.num_ranks != world.size()) {
    throw UsageError(fmt::format("-n {}, but the launcher has started {} ranks: omit -n",
                                 options.num_ranks, world.size()));
  }
  world.store().set(key_of("host of", world.rank()), own_host(environment),
                    Deadline::after(kMeetingTime));
  const auto congestion = measure_links(world, options);
  const auto members = all_ranks(world.size());
  world.store().barrier("bench link end", members,
                        Deadline::after(2 * kMeetingTime + 20 * options.time));
  if (world.rank() == 0) {
    const auto cluster = collect(world);
    streams.out << link_table(cluster, congestion);
    if (!options.json.empty()) write_cluster(options.json, cluster);
    if (!options.svg.empty()) write_whole(options.svg, link_svg(cluster));
    for (const auto& path : {options.json, options.svg}) {
      if (!path.empty()) streams.out << "written: " << path << '\n';
    }
    streams.out << std::flush;
  }
  // Rank 0 may run the store, which the others have used until here.
  world.store().barrier("bench link reported", members, Deadline::after(kMeetingTime));
  return kSuccess;
}

int start_ranks(const BenchLinkOptions& options, const std::vector<std::string>& arguments,
                const Environment& environment) {
  ScratchFolder folder(environment);
  std::vector<std::string> command{sibling_path("lockstep"), "bench", "link"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const int code = run_job({.command = command,
                            .num_ranks = options.num_ranks > 0 ? options.num_ranks : 2,
                            .announce = false,
                            .speaks_for_all = true,
                            .run_dir = folder.path() + "/ranks"},
                           environment);
  const bool interrupted = code == 128 + SIGINT || code == 128 + SIGTERM;
  if (code != 0 && !interrupted) folder.keep();
  return code;
}

}  // namespace

int run_bench_link(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto options = parse_bench_link_options(arguments);
    if (options.help) {
      streams.out << bench_link_help();
      return kSuccess;
    }
    const auto environment = Environment::of_process();
    if (find_placement(environment).source == PlacementSource::none) {
      return start_ranks(options, arguments, environment);
    }
    return run_rank(options, environment, streams);
  } catch (const Error& error) {
    return report("bench link", error, streams.error,
                  launcher_exit_code({.cause = RunCause::environment}));
  }
}

}  // namespace lockstep::cli
