#include "lockstep/rendezvous/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/machine/host_identity.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/rendezvous/group_registry.h"
#include "lockstep/rendezvous/member.h"
#include "lockstep/rendezvous/same_host.h"
#include "lockstep/rendezvous/world_locations_internal.h"
#include "lockstep/trace/rank_page.h"

namespace lockstep {

struct World::State {
  std::vector<std::shared_ptr<const void>> companions;  // first, so destroyed last
  Placement placement;
  RankLocation location;  // of this rank
  WorldTable table;
  std::optional<Store> store;
  std::shared_ptr<GroupRegistry> groups = std::make_shared<GroupRegistry>();
  RankPage page;
  std::vector<std::shared_ptr<const void>> guests;  // last, so destroyed first
};

namespace {

constexpr Member kRank0{MemberKind::rank, 0};

std::string key_of(std::string_view what, int rank) {
  return fmt::format("world/{}/{}", what, rank);
}

std::string key_of_group(const std::string& identity) { return "world/group/" + identity; }

// The facts of all ranks, at rank 0.
std::vector<RankFacts> collect_facts(Store& store, int size, Deadline deadline) {
  std::vector<RankFacts> facts;
  for (const auto& member : all_ranks(size)) {
    facts.push_back(
        facts_from_text(store.get_text(key_of("rank", member.number), deadline, member)));
  }
  return facts;
}

// Rank 0 tells each group of ranks with one identity which ranks belong to it; or, if the
// placements contradict each other, every rank why. The first character distinguishes the two.
constexpr char kGroup = '=';
constexpr char kRefusal = '!';

void publish_groups(Store& store, std::span<const RankFacts> facts, Deadline deadline) {
  std::string refusal;
  try {
    expect_no_contradiction(facts);
  } catch (const UsageError& error) {
    refusal = kRefusal + std::string(error.what());
  }
  for (const auto& group : groups_by_identity(facts)) {
    const auto& identity = facts[static_cast<std::size_t>(group.front())].identity;
    store.set(key_of_group(identity), refusal.empty() ? kGroup + ranks_to_text(group) : refusal,
              deadline);
  }
}

// The ranks with the identity of this rank.
std::vector<int> find_group(Store& store, const std::string& identity, Deadline deadline) {
  const auto text = store.get_text(key_of_group(identity), deadline, kRank0);
  if (text.starts_with(kRefusal)) throw UsageError(text.substr(1));
  auto group = ranks_from_text(std::string_view(text).substr(text.empty() ? 0 : 1));
  if (std::binary_search(group.begin(), group.end(), store.member().number)) return group;
  throw UsageError(fmt::format(
      "rank 0 sent {} a list of ranks without it: start all ranks with the same version "
      "of lockstep",
      to_string(store.member())));
}

// Rank 0 collects the hosts from the first rank of each group.
std::vector<int> collect_hosts(Store& store, std::span<const RankFacts> facts, Deadline deadline) {
  std::vector<std::vector<int>> proven;
  for (const auto& group : groups_by_identity(facts)) {
    const Member first{MemberKind::rank, group.front()};
    proven.push_back(
        ranks_from_text(store.get_text(key_of("host", first.number), deadline, first)));
  }
  return number_hosts(static_cast<int>(facts.size()), proven);
}

// Determines the host and the address of every rank, at every rank. Only rank 0 reads the facts of
// all: what another rank receives grows with the number of hosts, not of ranks.
WorldTable exchange(Store& store, const RankFacts& own, int size, Deadline deadline) {
  const int rank = store.member().number;
  store.set(key_of("rank", rank), to_text(own), deadline);
  store.barrier("world/arrived", all_ranks(size), deadline);
  std::vector<RankFacts> facts;
  if (rank == 0) {
    facts = collect_facts(store, size, deadline);
    publish_groups(store, facts, deadline);
  }
  const auto group = find_group(store, own.identity, deadline);
  const auto proven = prove_same_host(store, group, deadline);
  if (rank == group.front()) store.set(key_of("host", rank), ranks_to_text(proven), deadline);
  if (rank == 0) {
    const auto table = table_of(facts, collect_hosts(store, facts, deadline));
    store.set("world/table", to_text(table), deadline);
  }
  return table_from_text(store.get_text("world/table", deadline, kRank0), size);
}

// The address at which other ranks reach this one.
std::string own_address(const Store& store, const NetworkSettings& settings) {
  const auto interfaces = settings.interfaces();
  if (interfaces.empty()) return store.local_address();
  return choose_address(interfaces.front(), interface_addresses(), store.local_address());
}

[[noreturn]] void no_store() {
  throw UsageError("a world of one process that no launcher started has no store");
}

}  // namespace

World World::alone(const Placement& placement) {
  if (placement.size != 1) {
    throw UsageError(
        fmt::format("World::alone() was called for rank {} of {}, placed by {}: call init() or "
                    "meet() instead",
                    placement.rank, placement.size, to_string(placement.source)));
  }
  auto state = std::make_shared<State>();
  state->placement = placement;
  state->table = {.hosts = {0}, .addresses = {"127.0.0.1"}};
  return World(std::move(state));
}

World meet(Store store, const Placement& placement, Deadline deadline) {
  return meet(std::move(store), placement, deadline, host_identity());
}

World meet(Store store, const Placement& placement, Deadline deadline,
           const std::string& identity) {
  const Member self{MemberKind::rank, placement.rank};
  if (store.member() != self) {
    throw UsageError(fmt::format("{} was placed by {}, but the store was connected as {}",
                                 to_string(self), to_string(placement.source),
                                 to_string(store.member())));
  }
  const auto own = facts_of(placement, identity, own_address(store, placement.network));
  auto state = std::make_shared<World::State>();
  state->placement = placement;
  state->table = exchange(store, own, placement.size, deadline);
  state->location = locate_rank(placement.rank, own, state->table);
  state->groups->set_network_settings(placement.network);
  // No rank leaves while others still read its keys.
  store.barrier("world/met", all_ranks(placement.size), deadline);
  state->store = std::move(store);
  return World(std::move(state));
}

int World::rank() const noexcept { return state_->placement.rank; }
int World::size() const noexcept { return state_->placement.size; }

int World::local_rank() const noexcept { return own_location().local_rank; }
int World::local_size() const noexcept { return own_location().local_size; }
int World::node() const noexcept { return own_location().node; }
int World::num_nodes() const noexcept { return own_location().num_nodes; }

int World::host_of(int rank) const { return state_->table.hosts[index_of(rank)]; }

bool World::same_host(int a, int b) const { return host_of(a) == host_of(b); }

const std::string& World::address_of(int rank) const {
  return state_->table.addresses[index_of(rank)];
}

int World::num_hosts() const noexcept {
  return 1 + *std::max_element(state_->table.hosts.begin(), state_->table.hosts.end());
}

PlacementSource World::source() const noexcept { return state_->placement.source; }

const std::optional<std::string>& World::run_dir() const noexcept {
  return state_->placement.run_dir;
}

bool World::has_store() const noexcept { return state_->store.has_value(); }

Store& World::store() const {
  if (!state_->store) no_store();
  return *state_->store;
}

const Secret& World::secret() const { return store().secret(); }

std::size_t World::index_of(int rank) const {
  if (rank < 0 || rank >= size()) {
    throw UsageError(fmt::format("rank {} is invalid in a world of {} ranks", rank, size()));
  }
  return static_cast<std::size_t>(rank);
}

const RankLocation& World::own_location() const noexcept { return state_->location; }

RankPage& World::page() const noexcept { return state_->page; }

void World::set_page(RankPage page) { state_->page = std::move(page); }

const std::shared_ptr<GroupRegistry>& World::groups() const noexcept { return state_->groups; }

void World::keep_until_leaving(std::shared_ptr<const void> guest) {
  state_->guests.push_back(std::move(guest));
}

void World::keep(std::shared_ptr<const void> companion) {
  state_->companions.push_back(std::move(companion));
}

}  // namespace lockstep
