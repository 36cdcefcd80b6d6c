// Faults of a connection while a group works: no hang, no wrong sum, and an error in time on every
// rank. Hundreds of faults if LOCKSTEP_SOAK_SEED is set.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/tcp/connect.h"
#include "lockstep/tcp/test_faulty_proxy_internal.h"
#include "lockstep/tcp/wire.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// Replaces the address of one rank by that of a proxy to it.
class ThroughProxy final : public AddressExchange {
 public:
  ThroughProxy(AddressExchange& real, int rank, const Fault& fault,
               std::unique_ptr<FaultyProxy>& proxy)
      : real_(real), rank_(rank), fault_(fault), proxy_(proxy) {}
  void exchange(const std::string& own) override { real_.exchange(own); }
  [[nodiscard]] std::string of(int rank) override {
    if (rank != rank_) return real_.of(rank);
    auto address = parse_rank_address(real_.of(rank));
    proxy_ = std::make_unique<FaultyProxy>(address.endpoints.front(), fault_);
    address.endpoints.front() = proxy_->endpoint();
    return to_string(address);
  }

 private:
  AddressExchange& real_;
  const int rank_;
  const Fault& fault_;
  std::unique_ptr<FaultyProxy>& proxy_;
};

// Sums of spans filled with a number per rank and call, until a call throws.
void sum_until_failure(Group& group, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> values;
  for (std::int32_t round = 0; round < 100'000; ++round) {
    values.assign(random() % 3 == 0 ? 40'000 : 500, round + group.rank());
    const auto bytes = std::as_writable_bytes(std::span(values));
    group.wait(*group.start({.kind = Collective::all_reduce,
                             .dtype = DType::int32,
                             .count = static_cast<std::int64_t>(values.size()),
                             .input = bytes,
                             .output = bytes},
                            nullptr));
    const auto wanted = group.size() * round + group.size() * (group.size() - 1) / 2;
    ASSERT_TRUE(std::all_of(values.begin(), values.end(),
                            [&](std::int32_t value) { return value == wanted; }))
        << "a wrong sum in round " << round;
  }
}

// What every rank is told. Of the connection of messages, a changed length of a message looks like
// silence, and the second one to notice a reset may only see that all connections end.
const char* words_of(const Fault& fault) {
  if (fault.kind == Fault::Kind::silence) return "its machine answers, its process does not";
  if (fault.connection == 0) return "";
  return fault.kind == Fault::Kind::flip ? "changed on the way" : "a connection to it was reset";
}

void run_with(const Fault& fault, int stripes, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto damaged = static_cast<int>(seed / 2 % 2);  // the rank whose link to rank 2 is damaged
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(3, [&](testing::Rank& self) {
    std::unique_ptr<FaultyProxy> proxy;
    const auto world = point.join(self.rank(), 3);
    // A peer that gets no processor for as long as the heartbeat would be told from one that
    // resets.
    const auto heartbeat = fault.kind == Fault::Kind::reset ? 3000ms : 500ms;
    const auto tcp = connect_by_tcp({.heartbeat = heartbeat,
                                     .encrypts_data = seed % 2 == 0,
                                     .stripes = stripes,
                                     .stripe_threads = seed % 3 == 0 ? 1 : 3});
    const Connect connect = [&](const Membership& membership, AddressExchange& addresses,
                                Deadline deadline, const Watch& watch) {
      if (self.rank() != 2) return tcp(membership, addresses, deadline, watch);
      ThroughProxy through(addresses, damaged, fault, proxy);
      return tcp(membership, through, deadline, watch);
    };
    const auto group = make_group(world, GroupOptions{.timeout = 20s}, connect);
    const auto begin = std::chrono::steady_clock::now();
    try {
      sum_until_failure(*group, seed);
      ADD_FAILURE() << "rank " << self.rank() << " has noticed nothing";
    } catch (const PeerError& error) {
      // Which end of the damaged link is named depends on the end that notices first.
      EXPECT_TRUE(error.rank() == 2 || error.rank() == damaged) << error.what();
      EXPECT_NE(std::string(error.what()).find(words_of(fault)), std::string::npos) << error.what();
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s) << error.what();
    }
    self.barrier(soon());  // the proxy stays until all have failed
  });
}

class TcpFault : public ::testing::TestWithParam<Fault::Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TcpFault,
                         ::testing::Values(Fault::Kind::flip, Fault::Kind::reset,
                                           Fault::Kind::silence));

TEST_P(TcpFault, EveryRankGetsAnErrorInTimeAndNoSumIsWrong) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t count = soak ? 100 : 5;
  for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed * 31 + static_cast<std::uint64_t>(GetParam()));
    // Beyond the handshake and the hello.
    const auto stripes = static_cast<int>(1 + random() % 3);
    run_with({GetParam(), static_cast<int>(random() % 2) * (1 + static_cast<int>(seed) % stripes),
              random() % 2 == 0, 1000 + random() % 1'000'000},
             stripes, seed);
  }
}

}  // namespace
}  // namespace lockstep
