#include "lockstep/rendezvous/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/test_stay_internal.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;
using Clock = Deadline::Clock;

StoreValue value(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Every function, called by every rank of `size`, with results that do not depend on the order.
void use_every_verb(Store& store, int rank, int size) {
  const auto own_key = fmt::format("key of {}", rank);
  store.set(own_key, fmt::format("value of {}", rank), soon());
  for (int other = 0; other < size; ++other) {
    EXPECT_EQ(store.get_text(fmt::format("key of {}", other), soon(), rank_member(other)),
              fmt::format("value of {}", other));
  }
  store.add("sum", rank + 1, soon());
  store.barrier("added", all_ranks(size), soon());
  EXPECT_EQ(store.get_text("sum", soon()), fmt::format("{}", size * (size + 1) / 2));

  const auto claim = store.compare_exchange("winner", {}, value(own_key), soon());
  if (claim.exchanged) store.set("has won", own_key, soon());
  store.wait(std::array<std::string, 2>{"winner", "has won"}, soon());
  EXPECT_EQ(store.try_get("winner", soon()), store.try_get("has won", soon()));
  EXPECT_FALSE(store.try_get("not set", soon()));

  store.barrier("looked", all_ranks(size), soon());
  EXPECT_TRUE(store.remove(own_key, soon()));
  EXPECT_FALSE(store.remove(own_key, soon()));
  EXPECT_EQ(store.members(soon()).size(), static_cast<std::size_t>(size));
  store.barrier("end", all_ranks(size), soon());
}

// The exception of a call, and how long the call took.
struct Failure {
  std::string text;
  int rank = -1;         // of a PeerError
  int error_number = 0;  // of a SystemError
  Clock::duration after{};
};

template <typename Verb>
Failure failure_of(const Verb& verb) {
  const auto begin = Clock::now();
  Failure failure;
  try {
    verb();
    ADD_FAILURE() << "no error";
  } catch (const PeerError& error) {
    failure.text = error.what();
    failure.rank = error.rank();
  } catch (const SystemError& error) {
    failure.text = error.what();
    failure.error_number = error.error_number();
  } catch (const UsageError& error) {
    failure.text = error.what();
  }
  failure.after = Clock::now() - begin;
  return failure;
}

void expect_words(const std::string& text, std::initializer_list<std::string_view> all_words) {
  for (const auto words : all_words) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
  }
}

class StoreOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, StoreOfSize, ::testing::Range(1, 6));

TEST_P(StoreOfSize, EveryFunctionWorksAmongThreadsOverTcp) {
  const StoreServer server(Listener::tcp("127.0.0.1"), test_secret(), test_context());
  testing::run_ranks_as_threads(GetParam(), [&](Rank& self) {
    auto store = Store::connect(server.endpoint(), test_secret(), test_context(),
                                rank_member(self.rank()), soon());
    EXPECT_EQ(store.local_address(), "127.0.0.1");
    use_every_verb(store, self.rank(), self.size());
  });
}

TEST_P(StoreOfSize, EveryFunctionWorksAmongProcessesOverAUnixSocket) {
  (void)testing::run_ranks_as_processes(GetParam(), [](Rank& self) {
    const auto point = MeetingPoint::of_processes();
    std::optional<StoreServer> server;
    if (self.rank() == 0)
      server.emplace(Listener::unix_socket(point.name), test_secret(), test_context());
    {
      auto store = point.connect(self.rank());  // waits until the server listens
      use_every_verb(store, self.rank(), self.size());
    }
    self.barrier(soon());  // the server stays until all have left
  });
}

TEST(Store, ValuesOf8MiBAreAcceptedAndLongerOnesRefused) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(3, [&](Rank& self) {
    auto store = point.connect(self.rank());
    StoreValue big(kMaxValueBytes);
    for (std::size_t i = 0; i < big.size(); i += 4096) big[i] = static_cast<std::byte>(i >> 12);
    if (self.rank() == 0) store.set("big", big, soon());
    EXPECT_TRUE(store.get("big", soon()) == big);
    big.push_back(std::byte{1});
    const auto failure = failure_of([&] { store.set("bigger", big, soon()); });
    expect_words(failure.text, {"8388609", "0 to 8388608"});
    EXPECT_TRUE(store.try_get("big", soon()));  // the Store is still usable
    store.barrier("end", all_ranks(3), soon());
  });
}

TEST(Store, ThreadsOfOneMemberTakeTurns) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  auto store = point.connect(0);
  testing::run_ranks_as_threads(4, [&](Rank& /*self*/) {
    for (int i = 0; i < 50; ++i) store.add("n", 1, soon());
  });
  EXPECT_EQ(store.get_text("n", soon()), "200");
}

TEST(Store, WaitsEndAtTheirDeadlineAndTheStoreStaysUsable) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  auto store = point.connect(0);
  const auto get = failure_of([&] { (void)store.get("never", Deadline::after(200ms)); });
  EXPECT_EQ(get.error_number, ETIMEDOUT);
  expect_words(get.text, {"no member set \"never\"", "within 200 ms"});
  const auto from =
      failure_of([&] { (void)store.get("k", Deadline::after(200ms), rank_member(4)); });
  EXPECT_EQ(from.rank, 4);
  expect_words(from.text, {"rank 4 did not set \"k\"", "has never connected"});
  const auto barrier =
      failure_of([&] { store.barrier("b", all_ranks(3), Deadline::after(200ms)); });
  EXPECT_EQ(barrier.rank, 1);
  expect_words(barrier.text, {"1 of 3", "Reached it: rank 0.", "Never connected: ranks 1-2."});
  for (const auto& failure : {get, from, barrier}) {
    EXPECT_GE(failure.after, 200ms);
    EXPECT_LT(failure.after, 10 * kAnswerGrace);
  }
  store.set("k", "v", soon());
  EXPECT_EQ(store.get_text("k", soon()), "v");
}

TEST(Store, AMemberThatIsAlreadyConnectedIsRefused) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  auto first = point.connect(3);
  expect_words(failure_of([&] { (void)point.connect(3); }).text, {"rank 3 is already connected"});
  first.set("k", "v", soon());
  { auto moved = std::move(first); }
  auto again = point.connect(3);  // it had left
  EXPECT_EQ(again.get_text("k", soon()), "v");
}

TEST(Store, AnotherSecretJobOrRoundIsReported) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  for (const auto& context : {HandshakeContext{"test", 2}, HandshakeContext{"other", 1}}) {
    EXPECT_THROW(
        (void)Store::connect_unix(point.name, test_secret(), context, rank_member(0), soon()),
        UsageError);
  }
  EXPECT_THROW(
      (void)Store::connect_unix(point.name, test_secret(8), test_context(), rank_member(0), soon()),
      UsageError);
}

TEST(Store, AMissingServerIsReportedAtTheDeadline) {
  const auto failure = failure_of([] {
    (void)Store::connect_unix("lockstep-test-nobody", test_secret(), test_context(), rank_member(0),
                              Deadline::after(300ms));
  });
  EXPECT_EQ(failure.error_number, ETIMEDOUT);
  expect_words(failure.text, {"cannot reach the rendezvous server", "lockstep-test-nobody"});
  EXPECT_LT(failure.after, 3s);
}

TEST(Store, AWaitDetectsTheEndOfTheServerAtOnce) {
  const auto point = MeetingPoint::of_threads();
  std::optional<StoreServer> server(std::in_place, Listener::unix_socket(point.name), test_secret(),
                                    test_context());
  auto store = point.connect(0);
  const std::jthread ends([&] {
    auto other = point.connect(1);
    (void)other.get("waiting", soon());
    server.reset();
  });
  store.set("waiting", "", soon());
  const auto failure = failure_of([&] { (void)store.get("never", soon()); });
  expect_words(failure.text, {"the rendezvous server at the Unix socket", "is lost"});
  EXPECT_LT(failure.after, 10s);
  const auto later = failure_of([&] { store.set("k", "v", soon()); });
  expect_words(later.text, {"is lost"});
}

[[noreturn]] void wait_to_be_killed(Rank& self) {
  self.note("waiting to be killed");
  for (;;) ::pause();
}

// Kills `victim` once all other ranks wait. Returns the time, on the machine's clock.
void kill_when_waited_for(const testing::RunningRanks& ranks, int victim) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank != victim) ranks.wait_for_note(rank, "waiting for the others", Deadline::after(30s));
  }
  ranks.wait_for_note(victim, "waiting to be killed", Deadline::after(30s));
  ::poll(nullptr, 0, 100);  // until the server has the waits; if too short, they only start later
  ranks.send_signal(victim, SIGKILL);
}

TEST(Store, MembersThatWaitForAKilledOneLearnItWithinASecond) {
  const auto body = [](Rank& self) {
    const StayUntilTold stay;
    const auto point = MeetingPoint::of_processes();
    std::optional<StoreServer> server;
    if (self.rank() == 0)
      server.emplace(Listener::unix_socket(point.name), test_secret(), test_context());
    auto store = point.connect(self.rank());
    store.barrier("all here", all_ranks(4), soon());
    if (self.rank() == 2) wait_to_be_killed(self);
    self.note("waiting for the others");
    const auto failure = self.rank() == 3
                             ? failure_of([&] { (void)store.get("k", soon(), rank_member(2)); })
                             : failure_of([&] { store.barrier("b", all_ranks(4), soon()); });
    expect_words(failure.text, {"rank 2"});
    EXPECT_EQ(failure.rank, 2);
    EXPECT_LT(failure.after, 5s);
    std::printf("noticed %ld\n", Clock::now().time_since_epoch() / 1ms);
    self.note("heard");
    stay.wait();  // other ranks may still need the server
  };
  long killed = 0;
  const auto outcomes = testing::run_ranks_as_processes(
      4, body, {.expect = testing::Expect::anything, .meanwhile = [&](const auto& ranks) {
                  kill_when_waited_for(ranks, 2);
                  killed = Clock::now().time_since_epoch() / 1ms;
                  for (const int rank : {0, 1, 3}) ranks.wait_for_note(rank, "heard", soon());
                  for (const int rank : {0, 1, 3}) {
                    ranks.send_signal(rank, StayUntilTold::kSignal);
                  }
                }});
  EXPECT_EQ(outcomes[2].signal, SIGKILL);
  for (const std::size_t rank : {0u, 1u, 3u}) {
    EXPECT_TRUE(outcomes[rank].succeeded()) << outcomes[rank].output;
    const auto at = outcomes[rank].output.find("noticed ");
    ASSERT_NE(at, std::string::npos);
    EXPECT_LT(std::stol(outcomes[rank].output.substr(at + 8)) - killed, 1000);
  }
}

TEST(Store, AKilledServerIsDetectedWithinASecond) {
  const auto body = [](Rank& self) {
    const auto point = MeetingPoint::of_processes();
    if (self.rank() == 0) {
      const auto server = point.serve();
      wait_to_be_killed(self);
    }
    auto store = point.connect(self.rank());
    self.note("waiting for the others");
    const auto failure = failure_of([&] { store.barrier("b", all_ranks(3), soon()); });
    expect_words(failure.text, {"the rendezvous server at the Unix socket", "is lost"});
    std::printf("noticed %ld\n", Clock::now().time_since_epoch() / 1ms);
  };
  long killed = 0;
  const auto outcomes = testing::run_ranks_as_processes(
      3, body, {.expect = testing::Expect::anything, .meanwhile = [&](const auto& ranks) {
                  kill_when_waited_for(ranks, 0);
                  killed = Clock::now().time_since_epoch() / 1ms;
                }});
  for (const std::size_t rank : {1u, 2u}) {
    EXPECT_TRUE(outcomes[rank].succeeded()) << outcomes[rank].output;
    const auto at = outcomes[rank].output.find("noticed ");
    ASSERT_NE(at, std::string::npos);
    EXPECT_LT(std::stol(outcomes[rank].output.substr(at + 8)) - killed, 1000);
  }
}

TEST(Store, AStoppedServerIsReportedAtTheDeadlineAndUsableAfterwards) {
  const auto body = [](Rank& self) {
    const auto point = MeetingPoint::of_processes();
    if (self.rank() == 0) {
      const auto server = point.serve();
      self.note("serving");
      self.barrier(soon());
      return;
    }
    {
      auto store = point.connect(1);
      store.set("k", "v", soon());
      self.note("stop it");
      const auto failure = failure_of([&] { (void)store.get("never", Deadline::after(700ms)); });
      expect_words(failure.text, {"the rendezvous server", "does not answer"});
      EXPECT_LT(failure.after, 7s);
      self.note("continue");
      EXPECT_EQ(store.get_text("k", soon()), "v");
    }
    self.barrier(soon());
  };
  (void)testing::run_ranks_as_processes(2, body,
                                        {.meanwhile = [](const testing::RunningRanks& ranks) {
                                          ranks.wait_for_note(1, "stop it", Deadline::after(30s));
                                          ranks.send_signal(0, SIGSTOP);
                                          ranks.wait_for_note(1, "continue", Deadline::after(30s));
                                          ranks.send_signal(0, SIGCONT);
                                        }});
}

// Without a change, no request: the server sends nothing.
TEST(Store, MembersAreAskedForOnlyAfterAChange) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  auto store = point.connect(0);
  std::optional<Store> other(point.connect(1));
  const auto states = [&] {
    std::vector<MemberState> found;
    for (const auto& [member, state] : store.members(soon())) found.push_back(state);
    return found;
  };
  using enum MemberState;
  EXPECT_EQ(states(), (std::vector{connected, connected}));
  const auto before = server->bytes_sent();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(states(), (std::vector{connected, connected}));
  EXPECT_EQ(server->bytes_sent(), before);
  other.reset();
  const auto limit = soon();
  while (states() == std::vector{connected, connected} && !limit.expired()) {
  }
  EXPECT_EQ(states(), (std::vector{connected, left}));
  store.set("key", "value", soon());  // an announcement may precede the answer to any request
  const auto late = point.connect(2);
  EXPECT_EQ(store.get_text("key", soon()), "value");
  EXPECT_EQ(states(), (std::vector{connected, left, connected}));
}

}  // namespace
}  // namespace lockstep
