#include "lockstep/net/channel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/test_kill_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/soon.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using Bytes = std::vector<std::byte>;
using testing::soon;

const HandshakeContext kContext{"job-7", 3};

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The exception of `act`: its kind, its error number and its message.
struct Failure {
  std::string kind;
  int error_number = 0;
  std::string message;
};
Failure failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const SystemError& error) {
    return {"system", error.error_number(), error.what()};
  } catch (const Error& error) {
    return {std::string(error.kind()), 0, error.what()};
  }
  return {};
}

struct Ends {
  Channel client;
  Channel server;
};

Ends connect(std::pair<Socket, Socket> sockets) {
  const auto secret = Secret::random();
  auto server = std::async(std::launch::async, [&] {
    return Channel::accept(std::move(sockets.second), secret, kContext, soon());
  });
  auto client = Channel::connect(std::move(sockets.first), secret, kContext, soon());
  return {std::move(client), server.get()};
}

TEST(Channel, CarriesMessagesOfAnySizeBothWays) {
  auto listener = Listener::tcp("127.0.0.1");
  auto socket = Socket::connect(listener.endpoint(), soon());
  auto [client, server] = connect({std::move(socket), listener.accept(soon())});
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{70'000}, kMaxFrameBytes}) {
    Bytes message(size);
    for (std::size_t i = 0; i < size; ++i) message[i] = static_cast<std::byte>(i * 7);
    for (const auto& [from, to] : {std::pair{&client, &server}, std::pair{&server, &client}}) {
      std::jthread sending([&message, sender = from] { sender->send(message, soon()); });
      EXPECT_EQ(to->receive(soon()), message);
    }
  }
}

TEST(Channel, OneThreadSendsWhileAnotherReceives) {
  auto [client, server] = connect(Socket::pair());
  constexpr int num_messages = 200;
  std::vector<std::jthread> threads;
  for (auto* channel : {&client, &server}) {
    threads.emplace_back([channel] {
      for (int i = 0; i < num_messages; ++i) channel->send(bytes_of(std::to_string(i)), soon());
    });
    threads.emplace_back([channel] {
      for (int i = 0; i < num_messages; ++i) {
        EXPECT_EQ(channel->receive(soon()), bytes_of(std::to_string(i)));
      }
    });
  }
}

TEST(Channel, AnUnauthenticatedPeerIsReportedOnBothSides) {
  const auto secret = Secret::random();
  const auto another = Secret::random();
  const struct {
    const Secret& secret;
    HandshakeContext context;
  } strangers[] = {{another, kContext}, {secret, {"job-8", 3}}, {secret, {"job-7", 2}}};
  for (const auto& stranger : strangers) {
    auto sockets = Socket::pair();
    auto accepting = std::async(std::launch::async, [&] {
      return failure_of(
          [&] { (void)Channel::accept(std::move(sockets.second), secret, kContext, soon()); });
    });
    const auto client = failure_of([&] {
      (void)Channel::connect(std::move(sockets.first), stranger.secret, stranger.context, soon());
    });
    EXPECT_EQ(client.kind, "usage");
    EXPECT_EQ(client.message.rfind("the other end of a pair: the other side does not know this "
                                   "job's secret, or does not belong to job",
                                   0),
              0u)
        << client.message;
    const auto server = accepting.get();
    EXPECT_EQ(server.kind, "system");
    EXPECT_EQ(server.message.rfind("the other end of a pair closed the connection during the "
                                   "handshake, as a process with a different secret, job or round "
                                   "does: ",
                                   0),
              0u)
        << server.message;
  }
}

TEST(Channel, AWrongProofIsRefusedByTheServer) {
  auto [raw, socket] = Socket::pair();
  raw.send_all(Handshake::client(Secret::random(), kContext).release_output(), soon());
  raw.send_all(Bytes(32), soon());
  const auto failure = failure_of([taken = &socket] {
    (void)Channel::accept(std::move(*taken), Secret::random(), kContext, soon());
  });
  EXPECT_EQ(failure.kind, "usage");
}

TEST(Channel, AHandshakeWithASilentPeerEndsAtTheDeadline) {
  auto [silent, socket] = Socket::pair();
  const auto begin = std::chrono::steady_clock::now();
  const auto failure = failure_of([taken = &socket] {
    (void)Channel::accept(std::move(*taken), Secret::random(), kContext, Deadline::after(100ms));
  });
  EXPECT_EQ(failure.message,
            "waited for the handshake of the other end of a pair until the deadline: Connection "
            "timed out");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(Channel, AReceiveThatTimesOutLosesNoData) {
  auto sockets = Socket::pair();
  const auto secret = Secret::random();
  auto handshake = Handshake::client(secret, kContext);
  auto accepting = std::async(std::launch::async, [&] {
    return Channel::accept(std::move(sockets.second), secret, kContext, soon());
  });
  auto& raw = sockets.first;
  raw.send_all(handshake.release_output(), soon());
  Bytes reply(handshake.wanted());
  raw.receive_exactly(reply, soon());
  ASSERT_EQ(handshake.feed(reply), reply.size());
  raw.send_all(handshake.release_output(), soon());
  auto channel = accepting.get();

  const auto frame = Sealer(handshake.keys().sending).seal(bytes_of("hello"));
  for (std::size_t i = 0; i + 1 < frame.size(); ++i) {
    raw.send_all(std::span(frame).subspan(i, 1), soon());
    const auto failure = failure_of([&] { (void)channel.receive(Deadline::after(0ms)); });
    EXPECT_EQ(failure.error_number, ETIMEDOUT) << failure.message;
  }
  raw.send_all(std::span(frame).last(1), soon());
  EXPECT_EQ(channel.receive(soon()), bytes_of("hello"));
}

TEST(Channel, NoSendFollowsOneThatWasIncomplete) {
  auto [client, server] = connect(Socket::pair());
  const Bytes large(4u << 20);
  const auto first = failure_of([&, to = &client] { to->send(large, Deadline::after(50ms)); });
  EXPECT_EQ(first.error_number, ETIMEDOUT);
  const auto second = failure_of([to = &client] { to->send({}, soon()); });
  EXPECT_EQ(second.message,
            "cannot send to the other end of a pair: an earlier message was sent only in part: "
            "Broken pipe");
}

TEST(Channel, AMessageTooLongIsRefusedAndTheNextOnePasses) {
  auto [client, server] = connect(Socket::pair());
  EXPECT_EQ(failure_of([to = &client] { to->send(Bytes(kMaxFrameBytes + 1), soon()); }).kind,
            "usage");
  client.send(bytes_of("next"), soon());
  EXPECT_EQ(server.receive(soon()), bytes_of("next"));
}

TEST(Channel, IsReadableOnlyWhileAMessageWaits) {
  auto [client, server] = connect(Socket::pair());
  for (const auto* word : {"one", "two"}) client.send(bytes_of(word), soon());
  pollfd ready{server.number(), POLLIN, 0};
  for (int left = 2; left > 0; --left) {
    EXPECT_EQ(::poll(&ready, 1, 0), 1);
    (void)server.receive(soon());
  }
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
}

TEST(Channel, AForeignByteInTheStreamIsRefused) {
  auto [client, server] = connect(Socket::pair());
  const Bytes zeros(64);
  ASSERT_EQ(::send(client.number(), zeros.data(), zeros.size(), MSG_NOSIGNAL), 64);
  const auto failure = failure_of([from = &server] { (void)from->receive(soon()); });
  EXPECT_EQ(failure.error_number, EBADMSG);
  EXPECT_EQ(failure.message.rfind("frame 0 from the other end of a pair was changed", 0), 0u);
}

TEST(Channel, TheLastMessageOfAPeerThatEndsIsReceived) {
  auto ends = connect(Socket::pair());
  ends.client.send(bytes_of("last words"), soon());
  EXPECT_FALSE(ends.server.peer_lost());
  { const Channel closed = std::move(ends.client); }
  EXPECT_TRUE(ends.server.peer_lost());
  EXPECT_EQ(ends.server.receive(soon()), bytes_of("last words"));
  const auto failure = failure_of([&] { (void)ends.server.receive(soon()); });
  EXPECT_EQ(failure.message,
            "the other end of a pair closed the connection: Connection reset by peer");
}

TEST(Channel, NoOutcomeLeavesADescriptorOpen) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = count();
  for (int i = 0; i < 10; ++i) {
    { const auto ends = connect(Socket::pair()); }
    auto [raw, socket] = Socket::pair();
    raw.send_all(bytes_of("GET / HTTP/1.1\r\n"), soon());
    EXPECT_EQ(failure_of([taken = &socket] {
                (void)Channel::accept(std::move(*taken), Secret::random(), kContext, soon());
              }).kind,
              "usage");
  }
  EXPECT_EQ(count(), before);
}

// The secret is passed as in a launch: one process creates it and sends its descriptor.
TEST(ChannelOfProcesses, AKilledPeerIsNoticedAtOnceAndNamed) {
  const auto run = [](testing::Rank& self) {
    const auto name = fmt::format("lockstep channel_test {}", ::getppid());
    if (self.rank() == 0) {
      auto listener = Listener::unix_socket(name);
      self.barrier(soon());
      const auto secret = Secret::random();
      auto socket = listener.accept(soon());
      ASSERT_EQ(socket.peer_user(), ::geteuid());
      socket.send_descriptor(secret.to_descriptor().number(), soon());
      auto channel = Channel::accept(std::move(socket), secret, kContext, soon());
      EXPECT_EQ(channel.receive(soon()), bytes_of("hello"));
      self.note("heard");
      const auto failure = failure_of([&] { (void)channel.receive(soon()); });
      EXPECT_EQ(failure.error_number, ECONNRESET) << failure.message;
      EXPECT_NE(failure.message.find("process "), std::string::npos) << failure.message;
      EXPECT_TRUE(channel.peer_lost());
      return;
    }
    self.barrier(soon());
    auto socket = Socket::connect_unix(name, soon());
    const auto secret = Secret::from_descriptor(socket.receive_descriptor(soon()).number());
    auto channel = Channel::connect(std::move(socket), secret, kContext, soon());
    channel.send(bytes_of("hello"), soon());
    self.note(kWaitingToBeKilled);
    for (;;) ::pause();
  };
  kill_rank_1(run, "heard");
}

}  // namespace
}  // namespace lockstep
