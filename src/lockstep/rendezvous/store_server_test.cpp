// Unauthenticated peers, broken members and floods of connections do not disturb members.
#include "lockstep/rendezvous/store_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/channel.h"
#include "lockstep/net/seal.h"
#include "lockstep/net/socket.h"
#include "lockstep/rendezvous/store_message.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;
using Clock = Deadline::Clock;

// Two members that use the store continuously, and record the longest duration of a call.
class Traffic {
 public:
  explicit Traffic(const Endpoint& server) {
    for (int rank = 0; rank < 2; ++rank) {
      threads_.emplace_back([this, server, rank](const std::stop_token& stop) {
        auto store =
            Store::connect(server, test_secret(), test_context(), rank_member(rank), soon());
        ++num_connected_;
        for (int i = 0; !stop.stop_requested(); ++i) {
          const auto begin = Clock::now();
          store.set("key", std::to_string(i), Deadline::after(5s));
          (void)store.get("key", Deadline::after(5s));
          const auto took = (Clock::now() - begin) / 1ms;
          for (auto seen = longest_.load();
               took > seen && !longest_.compare_exchange_weak(seen, took);) {
          }
          ++num_rounds_;
        }
      });
    }
    // The attack starts while the job runs.
    while (num_connected_ < 2 || num_rounds_ < 10) ::poll(nullptr, 0, 1);
  }

  // Ends it. A member that failed would have ended the test program.
  void expect_undisturbed() {
    const long before = num_rounds_;
    const auto limit = Deadline::after(10s);
    while (num_rounds_ < before + 10 && !limit.expired()) ::poll(nullptr, 0, 1);
    EXPECT_GE(num_rounds_, before + 10) << "the members' traffic has stopped";
    threads_.clear();
    EXPECT_LT(longest_, 2000) << "milliseconds for two calls";
  }

 private:
  std::atomic<int> num_connected_ = 0;
  std::atomic<long> num_rounds_ = 0;
  std::atomic<long> longest_ = 0;  // ms
  std::vector<std::jthread> threads_;
};

// A client that can violate every rule: it writes handshake and frames itself.
class Stranger {
 public:
  explicit Stranger(const Endpoint& server) : socket_(Socket::connect(server, soon())) {}

  void send(std::span<const std::byte> bytes) {
    socket_.send_all(bytes, soon());
    sent_.insert(sent_.end(), bytes.begin(), bytes.end());
  }

  void shake_hands() {
    auto handshake = Handshake::client(test_secret(), test_context());
    for (;;) {
      send(handshake.release_output());
      if (handshake.done()) break;
      std::vector<std::byte> reply(handshake.wanted());
      socket_.receive_exactly(reply, soon());
      EXPECT_EQ(handshake.feed(reply), reply.size());
    }
    sealer_.emplace(handshake.keys().sending);
  }

  void ask(StoreRequest request) {
    send(sealer_->seal(encode(StoreRequestMessage{++last_id_, std::move(request)})));
  }

  // Reads to the end. Returns the number of bytes; nullopt when the server did not close in time.
  std::optional<std::size_t> read_to_end(Deadline deadline = soon()) {
    std::size_t total = 0;
    std::vector<std::byte> byte(1);
    try {
      for (;; ++total) socket_.receive_exactly(byte, deadline);
    } catch (const SystemError& error) {
      return error.error_number() == ETIMEDOUT ? std::nullopt : std::optional(total);
    }
  }

  [[nodiscard]] const std::vector<std::byte>& sent() const { return sent_; }

 private:
  Socket socket_;
  std::optional<Sealer> sealer_;
  std::uint64_t last_id_ = 0;
  std::vector<std::byte> sent_;
};

class StoreServerUnderAttack : public ::testing::Test {
 protected:
  StoreServer server{Listener::tcp("127.0.0.1"),
                     test_secret(),
                     test_context(),
                     {.pending_limit = 400ms, .stalled_reader_limit = 400ms}};
  Traffic traffic{server.endpoint()};
};

TEST_F(StoreServerUnderAttack, ASilentConnectionIsDropped) {
  Stranger stranger(server.endpoint());
  EXPECT_EQ(stranger.read_to_end(), 0u);
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, APeerWithoutTheSecretIsDropped) {
  EXPECT_THROW((void)Store::connect(server.endpoint(), test_secret(9), test_context(),
                                    rank_member(5), soon()),
               UsageError);
  // A peer that continues anyway, with an invalid proof.
  Stranger stranger(server.endpoint());
  auto hello = Handshake::client(test_secret(9), test_context());
  stranger.send(hello.release_output());
  stranger.send(std::vector<std::byte>(32));
  EXPECT_EQ(stranger.read_to_end(), 64u);  // the server's half of the handshake, no more
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, AReplayedConnectionIsRefused) {
  std::vector<std::byte> recorded;
  {
    Stranger member(server.endpoint());
    member.shake_hands();
    member.ask(request::Hello{rank_member(7)});
    member.ask(request::Set{"replayed", {}});
    recorded = member.sent();
  }
  auto store =
      Store::connect(server.endpoint(), test_secret(), test_context(), rank_member(8), soon());
  store.wait(std::vector<std::string>{"replayed"}, soon());
  (void)store.remove("replayed", soon());
  Stranger replay(server.endpoint());
  replay.send(recorded);
  const auto read = replay.read_to_end();
  ASSERT_TRUE(read);
  EXPECT_LE(*read, 64u);
  EXPECT_FALSE(store.try_get("replayed", soon()));
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, AFrameSentTwiceEndsTheConnection) {
  Stranger member(server.endpoint());
  member.shake_hands();
  member.ask(request::Hello{rank_member(7)});
  const auto before = member.sent().size();
  member.ask(request::Add{"n", 1});
  const std::vector<std::byte> frame(member.sent().begin() + static_cast<std::ptrdiff_t>(before),
                                     member.sent().end());
  member.send(frame);
  EXPECT_TRUE(member.read_to_end());
  auto store =
      Store::connect(server.endpoint(), test_secret(), test_context(), rank_member(8), soon());
  EXPECT_EQ(store.get_text("n", soon()), "1");
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, GarbageIsDropped) {
  std::vector<std::byte> garbage(100'000);
  for (std::size_t i = 0; i < garbage.size(); ++i)
    garbage[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  Stranger raw(server.endpoint());
  try {
    raw.send(garbage);
  } catch (const SystemError&) {  // closed before all of it was read
  }
  EXPECT_EQ(raw.read_to_end(), 0u);
  Stranger proven(server.endpoint());  // knows the secret, and sends a sealed frame of garbage
  proven.shake_hands();
  try {
    proven.send(garbage);
  } catch (const SystemError&) {
  }
  EXPECT_TRUE(proven.read_to_end());
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, OccasionalBytesDoNotExtendTheTimeLimit) {
  Stranger stranger(server.endpoint());
  const auto hello = Handshake::client(test_secret(), test_context()).release_output();
  std::size_t sent = 0;
  try {
    for (; sent < hello.size() - 1; ++sent) {
      stranger.send(std::span(hello).subspan(sent, 1));
      if (stranger.read_to_end(Deadline::after(50ms))) break;
    }
  } catch (const SystemError&) {  // closed between the two
  }
  // A byte every 50 ms: if each byte restarted the limit, all of them would be sent.
  EXPECT_LT(sent, hello.size() - 1);
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, AClaimOf4GiBIsDroppedAtTheClaim) {
  const std::vector<std::byte> claim(4, std::byte{0xff});
  Stranger proven(server.endpoint());
  proven.shake_hands();
  proven.send(claim);
  EXPECT_EQ(proven.read_to_end(Deadline::after(5s)), 0u);
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, AMemberThatViolatesTheProtocolIsLostAndNamed) {
  Stranger member(server.endpoint());
  member.shake_hands();
  member.ask(request::Hello{rank_member(7)});
  auto store =
      Store::connect(server.endpoint(), test_secret(), test_context(), rank_member(8), soon());
  member.send(std::vector<std::byte>(64, std::byte{0xff}));
  try {
    store.barrier("b", std::vector{rank_member(7), rank_member(8)}, soon());
    FAIL() << "rank 7 will not come";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 7);
  }
  traffic.expect_undisturbed();
}

TEST_F(StoreServerUnderAttack, AMemberThatNeverReadsIsDroppedAndDelaysNoOther) {
  auto store =
      Store::connect(server.endpoint(), test_secret(), test_context(), rank_member(8), soon());
  store.set("big", StoreValue(kMaxValueBytes), soon());
  Stranger frozen(server.endpoint());
  frozen.shake_hands();
  frozen.ask(request::Hello{rank_member(7)});
  for (int i = 0; i < 100; ++i) frozen.ask(request::TryGet{"big"});
  try {
    store.barrier("b", std::vector{rank_member(7), rank_member(8)}, soon());
    FAIL() << "rank 7 will not come";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), 7);
  }
  traffic.expect_undisturbed();
}

// As processes, because each has its own limit of descriptors. Rank 0 serves and is the job; the
// others are the crowd.
void be_attacked(Rank& self, int connections_each, const std::function<void()>& prepare) {
  const auto point = MeetingPoint::of_processes();
  std::optional<StoreServer> board;  // a second store, for the port of the server under attack
  if (self.rank() == 0)
    board.emplace(Listener::unix_socket(point.name), test_secret(), test_context());
  auto notes = point.connect(self.rank());
  if (self.rank() != 0) {
    const auto target = Endpoint::parse(notes.get_text("target", soon()));
    std::vector<Socket> crowd;
    for (int i = 0; i < connections_each; ++i) crowd.push_back(Socket::connect(target, soon()));
    notes.barrier("the crowd is here", all_ranks(self.size()), soon());
    notes.barrier("enough", all_ranks(self.size()), soon());
    return;
  }
  const StoreServer server(Listener::tcp("127.0.0.1"), test_secret(), test_context());
  // Runs the traffic once before: the undefined-behavior sanitizer opens a pipe to inspect the
  // first object of a class, and reports a broken object if that fails.
  Traffic(server.endpoint()).expect_undisturbed();
  Traffic traffic(server.endpoint());
  prepare();
  notes.set("target", server.endpoint().to_string(), soon());
  notes.barrier("the crowd is here", all_ranks(self.size()), soon());
  traffic.expect_undisturbed();
  const auto cpu_before = std::clock();
  ::poll(nullptr, 0, 500);  // the crowd stays connected; the server is idle
  const auto busy = (std::clock() - cpu_before) * 1000 / CLOCKS_PER_SEC;
  EXPECT_LT(busy, 250) << "milliseconds of 500: the server spins";
  notes.barrier("enough", all_ranks(self.size()), soon());
  auto late =
      Store::connect(server.endpoint(), test_secret(), test_context(), rank_member(9), soon());
  late.set("k", "v", soon());
}

TEST(StoreServer, TwoThousandConnectionsDoNotDisturbMembers) {
  (void)testing::run_ranks_as_processes(5, [](Rank& self) { be_attacked(self, 500, [] {}); });
}

TEST(StoreServer, RunningOutOfDescriptorsDoesNotStopMembersAndDoesNotSpin) {
  (void)testing::run_ranks_as_processes(2, [](Rank& self) {
    be_attacked(self, 200, [] {
      EXPECT_EQ(SystemError("met before", EMFILE).error_number(), EMFILE);  // the same for this
      const rlimit few{40, 40};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    });
  });
}

TEST(StoreServer, AnUnauthenticatedConnectionIsClosedForANewOne) {
  const StoreServer server(Listener::tcp("127.0.0.1"), test_secret(), test_context(),
                           {.max_pending = 3, .pending_limit = 60s});
  std::vector<Stranger> strangers;
  for (int i = 0; i < 5; ++i) strangers.emplace_back(server.endpoint());
  const auto count_ended = [&] {
    return std::count_if(strangers.begin(), strangers.end(), [](Stranger& stranger) {
      return stranger.read_to_end(Deadline::after(50ms)) == 0u;
    });
  };
  EXPECT_EQ(count_ended(), 2);
  auto member =
      Store::connect(server.endpoint(), test_secret(), test_context(), rank_member(0), soon());
  EXPECT_EQ(count_ended(), 3);
  member.set("k", "v", soon());
}

TEST(StoreServer, AMemberJoinsDuringAFloodOfConnections) {
  const StoreServer server(Listener::tcp("127.0.0.1"), test_secret(), test_context());
  const auto flood = [&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<Socket> wave;  // silent, and more than may be pending
      for (int i = 0; i < 200; ++i) {
        wave.push_back(Socket::connect(server.endpoint(), soon()));
        const linger reset{1, 0};  // else each connection would occupy a port for a minute
        ::setsockopt(wave.back().number(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      }
    }
  };
  const std::jthread first(flood);
  const std::jthread second(flood);
  ::poll(nullptr, 0, 50);
  // A server that closed the oldest connection would accept no member before the flood ends.
  for (int rank = 0; rank < 5; ++rank) {
    auto member = Store::connect(server.endpoint(), test_secret(), test_context(),
                                 rank_member(rank), Deadline::after(10s));
    member.set("k", "v", soon());
  }
  EXPECT_TRUE(server.has_had_members());
}

TEST(StoreServer, AJobNameThatIsTooLongIsRefusedAtOnce) {
  EXPECT_THROW(StoreServer(Listener::tcp("127.0.0.1"), test_secret(), {std::string(65, 'j'), 0}),
               UsageError);
}

}  // namespace
}  // namespace lockstep
