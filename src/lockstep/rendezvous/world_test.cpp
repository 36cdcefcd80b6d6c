#include "lockstep/rendezvous/world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/test_stay_internal.h"
#include "lockstep/machine/host_identity.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/rendezvous/group_registry.h"
#include "lockstep/rendezvous/same_host.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;

// As with the variables of MPI and plain ones: without nodes.
Placement bare_placement(int rank, int size) {
  Placement placement;
  placement.rank = rank;
  placement.size = size;
  placement.source = PlacementSource::plain;
  return placement;
}

std::string in_words(const World& world) {
  std::string text =
      fmt::format("rank {}/{} local {}/{} node {}/{} hosts", world.rank(), world.size(),
                  world.local_rank(), world.local_size(), world.node(), world.num_nodes());
  for (int rank = 0; rank < world.size(); ++rank) text += fmt::format(" {}", world.host_of(rank));
  return text;
}

class WorldOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WorldOfSize, ::testing::Range(1, 6));

TEST_P(WorldOfSize, ThreadsMeetOnOneHost) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(GetParam(), [&](Rank& self) {
    const auto world =
        meet(point.connect(self.rank()), bare_placement(self.rank(), self.size()), soon());
    const std::vector<World> copies(2, world);
    const auto& copy = copies.back();
    EXPECT_EQ(copy.rank(), self.rank());
    EXPECT_EQ(copy.size(), self.size());
    EXPECT_EQ(copy.local_rank(), self.rank());
    EXPECT_EQ(copy.local_size(), self.size());
    EXPECT_EQ(copy.num_nodes(), 1);
    EXPECT_EQ(copy.num_hosts(), 1);
    EXPECT_TRUE(copy.same_host(0, self.size() - 1));
    EXPECT_EQ(copy.address_of(0), "127.0.0.1");
    EXPECT_EQ(copy.source(), PlacementSource::plain);
    copy.store().barrier("end", all_ranks(self.size()), soon());
  });
}

TEST_P(WorldOfSize, ProcessesMeetOnOneHost) {
  (void)testing::run_ranks_as_processes(GetParam(), [](Rank& self) {
    const auto point = MeetingPoint::of_processes();
    std::optional<StoreServer> server;
    if (self.rank() == 0)
      server.emplace(Listener::unix_socket(point.name), test_secret(), test_context());
    {
      const auto world =
          meet(point.connect(self.rank()), bare_placement(self.rank(), self.size()), soon());
      std::string hosts;
      for (int rank = 0; rank < self.size(); ++rank) hosts += " 0";
      EXPECT_EQ(in_words(world), fmt::format("rank {0}/{1} local {0}/{1} node 0/1 hosts{2}",
                                             self.rank(), self.size(), hosts));
    }
    self.barrier(soon());
  });
}

// The description of the world by each of `size` threads.
std::map<int, std::string> worlds_of(int size, const std::function<Placement(int)>& placement_of,
                                     const std::function<std::string(int)>& identity_of) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  std::map<int, std::string> worlds;
  std::mutex mutex;  // guards worlds
  testing::run_ranks_as_threads(size, [&](Rank& self) {
    const auto world = meet(point.connect(self.rank()), placement_of(self.rank()), soon(),
                            identity_of(self.rank()));
    const std::lock_guard lock(mutex);
    worlds[self.rank()] = in_words(world);
  });
  return worlds;
}

TEST(World, DifferentIdentitiesAreDifferentHosts) {
  const auto worlds = worlds_of(
      4, [](int rank) { return bare_placement(rank, 4); },
      [](int rank) { return rank % 2 == 0 ? "even" : "odd"; });
  EXPECT_EQ(worlds.at(0), "rank 0/4 local 0/2 node 0/2 hosts 0 1 0 1");
  EXPECT_EQ(worlds.at(1), "rank 1/4 local 0/2 node 1/2 hosts 0 1 0 1");
  EXPECT_EQ(worlds.at(2), "rank 2/4 local 1/2 node 0/2 hosts 0 1 0 1");
  EXPECT_EQ(worlds.at(3), "rank 3/4 local 1/2 node 1/2 hosts 0 1 0 1");
}

TEST(World, NodesAreThoseOfTheLauncherAndHostsAreProven) {
  const auto two_agents_on_one_machine = [](int rank) {
    auto placement = bare_placement(rank, 4);
    placement.source = PlacementSource::torchrun;
    placement.local_rank = rank % 2;
    placement.local_size = 2;
    placement.node_rank = rank / 2;
    placement.num_nodes = 2;
    placement.run_dir = "runs/x";
    return placement;
  };
  const auto worlds =
      worlds_of(4, two_agents_on_one_machine, [](int /*rank*/) { return host_identity(); });
  EXPECT_EQ(worlds.at(0), "rank 0/4 local 0/2 node 0/2 hosts 0 0 0 0");
  EXPECT_EQ(worlds.at(3), "rank 3/4 local 1/2 node 1/2 hosts 0 0 0 0");
}

TEST(World, EqualIdentitiesWithoutAProofAreDifferentHosts) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  const std::vector<int> supposed{0, 1, 2};
  testing::run_ranks_as_threads(3, [&](Rank& self) {
    auto store = point.connect(self.rank());
    if (self.rank() != 1) {
      EXPECT_EQ(prove_same_host(store, supposed, soon()), (std::vector<int>{0, 2}));
    } else {  // has no access to the page, so it reports that it has not written
      store.set("host/0/nonce of 1", "not written", soon());
      store.barrier("host/0/written", all_ranks(3), soon());
    }
    store.barrier("end", all_ranks(3), soon());
  });
}

TEST(World, APageThatIsNotTheLeadersProvesNothing) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    auto store = point.connect(self.rank());
    if (self.rank() == 0) {  // a leader whose socket does not exist
      store.set("host/0/nonce", "00", soon());
      store.set("host/0/page", "lockstep-test-no-page", soon());
      store.barrier("host/0/written", all_ranks(2), soon());
      EXPECT_EQ(store.get_text("host/0/nonce of 1", soon()), "not written");
      store.set("host/0/proven", "0", soon());
    } else {
      EXPECT_EQ(prove_same_host(store, std::vector{0, 1}, soon()), std::vector{0});
    }
    store.barrier("end", all_ranks(2), soon());
  });
}

std::string failure_of_meeting(Store store, const Placement& placement, Deadline deadline) {
  try {
    (void)meet(std::move(store), placement, deadline);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_words(const std::string& text, std::initializer_list<std::string_view> all_words) {
  for (const auto words : all_words) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
  }
}

TEST(World, MissingRanksAreListedAtTheDeadline) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  const auto limit = Deadline::after(1s);
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    const int rank = self.rank() * 2;  // 0 and 2
    const auto failure = failure_of_meeting(point.connect(rank), bare_placement(rank, 5), limit);
    expect_words(failure, {"2 of 5 members reached", "Reached it: ranks 0 and 2.",
                           "Never connected: ranks 1 and 3-4."});
  });
}

TEST(World, RanksWithDifferentPlacementsAreRefused) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    auto placement = bare_placement(self.rank(), 2);
    if (self.rank() == 1) placement.source = PlacementSource::slurm;
    expect_words(failure_of_meeting(point.connect(self.rank()), placement, soon()),
                 {"rank 0 was placed by RANK and WORLD_SIZE", "rank 1 by srun (SLURM)"});
  });
}

TEST(World, ARankKilledWhileOthersMeetIsNamed) {
  const auto body = [](Rank& self) {
    const StayUntilTold stay;
    const auto point = MeetingPoint::of_processes();
    std::optional<StoreServer> server;
    if (self.rank() == 0)
      server.emplace(Listener::unix_socket(point.name), test_secret(), test_context());
    auto store = point.connect(self.rank());
    self.note("waiting");
    if (self.rank() == 2) {
      for (;;) ::pause();
    }
    expect_words(failure_of_meeting(std::move(store), bare_placement(self.rank(), 3), soon()),
                 {"rank 2"});
    self.note("heard");
    stay.wait();  // rank 1 must detect it before the server ends
  };
  const auto outcomes = testing::run_ranks_as_processes(
      3, body, {.expect = testing::Expect::anything, .meanwhile = [](const auto& ranks) {
                  for (int rank = 0; rank < 3; ++rank) {
                    ranks.wait_for_note(rank, "waiting", Deadline::after(30s));
                  }
                  ranks.send_signal(2, SIGKILL);
                  for (const int rank : {0, 1}) ranks.wait_for_note(rank, "heard", soon());
                  for (const int rank : {0, 1}) ranks.send_signal(rank, StayUntilTold::kSignal);
                }});
  EXPECT_TRUE(outcomes[0].succeeded()) << outcomes[0].output;
  EXPECT_TRUE(outcomes[1].succeeded()) << outcomes[1].output;
}

TEST(World, AloneNeedsNoStore) {
  Placement placement;
  placement.run_dir = "runs/x";
  const auto world = World::alone(placement);
  EXPECT_EQ(in_words(world), "rank 0/1 local 0/1 node 0/1 hosts 0");
  EXPECT_EQ(world.run_dir(), "runs/x");
  EXPECT_EQ(world.source(), PlacementSource::none);
  EXPECT_FALSE(world.has_store());
  EXPECT_THROW((void)world.store(), UsageError);
  EXPECT_THROW((void)world.secret(), UsageError);
  EXPECT_THROW((void)world.host_of(1), UsageError);
  EXPECT_THROW((void)World::alone(bare_placement(1, 2)), UsageError);
}

TEST(World, ARankHasTheAddressOfItsInterface) {
  const auto all = interface_addresses();
  const auto outside = std::ranges::find_if(
      all, [](const InterfaceAddress& each) { return !is_loopback(each.address); });
  const auto& chosen = outside == all.end() ? all.front() : *outside;
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(2, [&](Rank& self) {
    auto placement = bare_placement(self.rank(), 2);
    if (self.rank() == 1) placement.network.interface = chosen.address;
    placement.network.heartbeat = 700ms;
    const auto world = meet(point.connect(self.rank()), placement, soon());
    EXPECT_EQ(world.address_of(0), "127.0.0.1");
    EXPECT_EQ(world.address_of(1), chosen.address);
    EXPECT_EQ(world.groups()->network_settings().heartbeat, 700ms);
  });
  auto placement = bare_placement(0, 1);
  placement.network.interface = "no-such-interface";
  expect_words(failure_of_meeting(point.connect(0), placement, soon()),
               {"no interface of this machine is \"no-such-interface\""});
}

// What the server sends grows with the number of ranks, not with its square.
TEST(World, ManyRanksMeetWithFewBytes) {
  const auto bytes_of = [](int size) {
    const auto point = MeetingPoint::of_threads();
    const auto server = point.serve();
    testing::run_ranks_as_threads(size, [&](Rank& self) {
      const auto world =
          meet(point.connect(self.rank()), bare_placement(self.rank(), self.size()), soon());
      EXPECT_EQ(world.num_hosts(), 1);
    });
    return server->bytes_sent();
  };
  EXPECT_LT(bytes_of(64), 64U * 2048U);
}

TEST(World, AStoreOfAnotherRankIsRefused) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  expect_words(failure_of_meeting(point.connect(1), bare_placement(0, 1), soon()),
               {"rank 0 was placed by", "connected as rank 1"});
}

}  // namespace
}  // namespace lockstep
