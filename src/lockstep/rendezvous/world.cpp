#include "lockstep/rendezvous/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/machine/host_identity.h"
#include "lockstep/rendezvous/group_registry.h"
#include "lockstep/rendezvous/member.h"
#include "lockstep/rendezvous/peer_text.h"
#include "lockstep/rendezvous/same_host.h"
#include "lockstep/rendezvous/world_locations_internal.h"

namespace lockstep {

struct World::State {
  std::vector<std::shared_ptr<const void>> companions;  // first, so destroyed last
  Placement placement;
  std::vector<RankLocation> locations;
  std::vector<std::string> addresses;
  std::optional<Store> store;
  std::shared_ptr<GroupRegistry> groups = std::make_shared<GroupRegistry>();
};

namespace {

constexpr Member kRank0{MemberKind::rank, 0};

std::string key_of(std::string_view what, int rank) {
  return fmt::format("world/{}/{}", what, rank);
}

// Gathers the facts of every rank at every rank. Rank 0 collects them, so that the server gets 2
// requests per rank, not one per pair of ranks.
std::vector<RankFacts> exchange(Store& store, const RankFacts& own, int size, Deadline deadline) {
  const int rank = store.member().number;
  store.set(key_of("rank", rank), to_text(std::span(&own, 1)), deadline);
  store.barrier("world/arrived", all_ranks(size), deadline);
  const auto read = [](const std::string& text) {
    return read_peer_text("the placement that another rank sent",
                          [&] { return facts_from_text(text); });
  };
  if (rank != 0) return read(store.get_text("world/ranks", deadline, kRank0));
  std::vector<RankFacts> facts;
  for (const auto& member : all_ranks(size)) {
    const auto text = store.get_text(key_of("rank", member.number), deadline, member);
    const auto own_facts = read(text);
    if (own_facts.size() != 1) {
      throw UsageError(
          fmt::format("rank {} sent the placements of {} ranks, expected its own: start all ranks "
                      "with the same version of lockstep",
                      member.number, own_facts.size()));
    }
    facts.push_back(own_facts.front());
  }
  store.set("world/ranks", to_text(facts), deadline);
  return facts;
}

std::string text_of(std::span<const int> numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

std::vector<int> numbers_of(const std::string& text) {
  return read_peer_text("a list of hosts", [&] {
    std::vector<int> numbers;
    for (std::size_t begin = 0; begin < text.size();) {
      const auto end = std::min(text.find(' ', begin), text.size());
      numbers.push_back(std::stoi(text.substr(begin, end - begin)));
      begin = end + 1;
    }
    return numbers;
  });
}

// Determines the host of every rank, at every rank. Rank 0 collects them from the first rank of
// each group.
std::vector<int> find_hosts(Store& store, std::span<const RankFacts> facts, Deadline deadline) {
  const int rank = store.member().number;
  const auto size = static_cast<int>(facts.size());
  const auto groups = groups_by_identity(facts);
  const auto own = std::find_if(groups.begin(), groups.end(), [rank](const auto& group) {
    return std::binary_search(group.begin(), group.end(), rank);
  });
  const auto proven = prove_same_host(store, *own, deadline);
  if (rank == own->front()) store.set(key_of("host", rank), text_of(proven), deadline);
  if (rank != 0) return numbers_of(store.get_text("world/hosts", deadline, kRank0));
  std::vector<std::vector<int>> all_proven;
  for (const auto& group : groups) {
    const Member first{MemberKind::rank, group.front()};
    all_proven.push_back(numbers_of(store.get_text(key_of("host", first.number), deadline, first)));
  }
  auto hosts = number_hosts(size, all_proven);
  store.set("world/hosts", text_of(hosts), deadline);
  return hosts;
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
  state->locations = {RankLocation{}};
  state->addresses = {"127.0.0.1"};
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
  const auto own = facts_of(placement, identity, store.local_address());
  const auto facts = exchange(store, own, placement.size, deadline);
  expect_no_contradiction(facts);
  const auto hosts = find_hosts(store, facts, deadline);
  auto state = std::make_shared<World::State>();
  state->placement = placement;
  state->locations = locate_ranks(facts, hosts);
  for (const auto& each : facts) state->addresses.push_back(each.address);
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

int World::host_of(int rank) const { return state_->locations[index_of(rank)].host; }

bool World::same_host(int a, int b) const { return host_of(a) == host_of(b); }

const std::string& World::address_of(int rank) const { return state_->addresses[index_of(rank)]; }

int World::num_hosts() const noexcept {
  const auto last = std::max_element(
      state_->locations.begin(), state_->locations.end(),
      [](const RankLocation& a, const RankLocation& b) { return a.host < b.host; });
  return last->host + 1;
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

const RankLocation& World::own_location() const noexcept {
  return state_->locations[static_cast<std::size_t>(rank())];
}

const std::shared_ptr<GroupRegistry>& World::groups() const noexcept { return state_->groups; }

void World::keep(std::shared_ptr<const void> companion) {
  state_->companions.push_back(std::move(companion));
}

}  // namespace lockstep
