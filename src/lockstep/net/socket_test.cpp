#include "lockstep/net/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

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

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string unique_name(std::string_view word) {
  return fmt::format("lockstep socket_test {} {}", word, ::getpid());
}

std::size_t num_open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// The message and error number of the SystemError that `act` throws.
struct Failure {
  std::string message;
  int error_number = 0;
};
template <typename Act>
Failure failure_of(const Act& act) {
  try {
    act();
  } catch (const SystemError& error) {
    return {error.what(), error.error_number()};
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

std::pair<Socket, Socket> connected(Listener& listener) {
  auto client = Socket::connect(listener.endpoint(), soon());
  return {std::move(client), listener.accept(soon())};
}

void expect_echo(Socket& left, Socket& right) {
  left.send_all(bytes_of("hello"), soon());
  Bytes received(5);
  right.receive_exactly(received, soon());
  EXPECT_EQ(received, bytes_of("hello"));
}

TEST(Socket, CarriesBytesOverIpv4Ipv6AndUnix) {
  for (const auto* host : {"127.0.0.1", "::1", "localhost"}) {
    auto listener = Listener::tcp(host);
    auto [client, server] = connected(listener);
    expect_echo(client, server);
    expect_echo(server, client);
    EXPECT_EQ(client.peer(), listener.endpoint().to_string());
    EXPECT_EQ(server.peer(), client.local_endpoint().to_string());
  }
  auto listener = Listener::unix_socket(unique_name("echo"));
  auto client = Socket::connect_unix(unique_name("echo"), soon());
  auto server = listener.accept(soon());
  expect_echo(client, server);
  expect_echo(server, client);
  EXPECT_EQ(server.peer(),
            fmt::format("process {} at the Unix socket \"{}\"", ::getpid(), unique_name("echo")));
}

TEST(Socket, CarriesMoreThanTheKernelHolds) {
  auto [left, right] = Socket::pair();
  Bytes sent(20u << 20);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 31);
  Bytes received(sent.size());
  std::jthread reader([&, from = &right] { from->receive_exactly(received, soon()); });
  left.send_all(sent, soon());
  reader.join();
  EXPECT_EQ(received, sent);
}

TEST(Socket, IsNotInheritedAndNeverBlocks) {
  auto listener = Listener::tcp("127.0.0.1");
  auto [client, server] = connected(listener);
  for (const int number : {client.number(), server.number(), listener.number()}) {
    EXPECT_NE(::fcntl(number, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(::fcntl(number, F_GETFL) & O_NONBLOCK, 0);
  }
  std::array<std::byte, 1> byte{};
  EXPECT_EQ(client.try_receive(byte), std::nullopt);
}

TEST(Socket, AConnectWithoutAListenerNamesTheEndpoint) {
  const auto endpoint = Listener::tcp("127.0.0.1").endpoint();  // free again at once
  const auto failure = failure_of([&] { (void)Socket::connect(endpoint, soon()); });
  EXPECT_EQ(failure.error_number, ECONNREFUSED);
  EXPECT_EQ(failure.message,
            fmt::format("cannot connect to {} (is a process listening there?): Connection refused",
                        endpoint.to_string()));
  const auto local = failure_of([&] { (void)Socket::connect_unix(unique_name("gone"), soon()); });
  EXPECT_EQ(local.error_number, ECONNREFUSED);
  EXPECT_NE(local.message.find(unique_name("gone")), std::string::npos);
}

// Linux chooses even free ports for connects, one after the other, and odd ones for listeners. So
// one of many connects to an even free port gets that same port as its local one, and TCP connects
// the socket to itself. Other tests may use the first port that is tried.
Endpoint free_even_endpoint() {
  auto port = Listener::tcp("127.0.0.1").endpoint().port & ~1u;
  for (int tries = 0;; ++tries, port -= 2) {
    try {
      return Listener::tcp("127.0.0.1", static_cast<std::uint16_t>(port)).endpoint();
    } catch (const SystemError&) {
      if (tries == 100) throw;
    }
  }
}

TEST(Socket, DoesNotConnectToItself) {
  const auto endpoint = free_even_endpoint();
  for (int i = 0; i < 30'000 && !HasFailure(); ++i) {
    EXPECT_THROW((void)Socket::connect(endpoint, soon()), SystemError);
  }
}

TEST(Socket, AnUnknownHostIsNamedWithinTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    (void)Socket::connect({"no-such-host.invalid", 1}, Deadline::after(300ms));
    FAIL() << "connected to a host that does not exist";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-host.invalid"), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

// So many connections that are not accepted that the next one waits.
std::vector<FileDescriptor> fill_queue(const Listener& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(::listen(listener.number(), 0), 0);
  std::vector<FileDescriptor> fillers;
  for (int i = 0; i < 4; ++i) {
    FileDescriptor filler(
        ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)::connect(filler.number(), reinterpret_cast<sockaddr*>(&address), size);
    fillers.push_back(std::move(filler));
  }
  return fillers;
}

TEST(Socket, AConnectEndsAtItsDeadline) {
  auto tcp = Listener::tcp("127.0.0.1");
  auto local = Listener::unix_socket(unique_name("full"));
  const auto tcp_fillers = fill_queue(tcp);
  const auto local_fillers = fill_queue(local);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(failure_of([&] {
              (void)Socket::connect(tcp.endpoint(), Deadline::after(200ms));
            }).error_number,
            ETIMEDOUT);
  EXPECT_EQ(failure_of([&] {
              (void)Socket::connect_unix(unique_name("full"), Deadline::after(200ms));
            }).error_number,
            ETIMEDOUT);
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, 400ms);
  EXPECT_LT(waited, 5s);
}

TEST(Socket, SendingAndReceivingEndAtTheirDeadline) {
  auto [left, right] = Socket::pair();
  const auto begin = std::chrono::steady_clock::now();
  Bytes bytes(8);
  right.send_all(Bytes(3), soon());
  const auto receiving =
      failure_of([&, from = &left] { from->receive_exactly(bytes, Deadline::after(100ms)); });
  EXPECT_EQ(
      receiving.message,
      "waited for bytes from the other end of a pair until the deadline: Connection timed out");
  const auto sending =
      failure_of([to = &left] { to->send_all(Bytes(8u << 20), Deadline::after(100ms)); });
  EXPECT_EQ(sending.error_number, ETIMEDOUT);
  EXPECT_EQ(failure_of([from = &right] {
              (void)from->receive_descriptor(Deadline::after(0ms));
            }).error_number,
            EPROTO);  // bytes without a descriptor
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, 200ms);
  EXPECT_LT(waited, 5s);
}

TEST(Socket, SendingToALostPeerThrowsAndRaisesNoSignal) {
  ASSERT_EQ(::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  auto listener = Listener::tcp("127.0.0.1");
  auto tcp = connected(listener);
  auto local = Socket::pair();
  for (auto* ends : {&tcp, &local}) {
    { const Socket closed = std::move(ends->second); }
    EXPECT_TRUE(ends->first.peer_lost());
    const auto failure = failure_of([&] {
      for (;;) ends->first.send_all(Bytes(1000), soon());
    });
    EXPECT_TRUE(failure.error_number == EPIPE || failure.error_number == ECONNRESET);
    EXPECT_EQ(failure.message.rfind("cannot send to " + ends->first.peer(), 0), 0u);
  }
  EXPECT_EQ(failure_of([&] { local.first.send_descriptor(0, soon()); }).error_number, EPIPE);
}

TEST(Socket, TheEndOfTheStreamIsAnErrorInTheMiddleOfAMessage) {
  auto [left, right] = Socket::pair();
  EXPECT_FALSE(left.peer_lost());
  right.send_all(bytes_of("abc"), soon());
  { const Socket closed = std::move(right); }
  EXPECT_TRUE(left.peer_lost());
  Bytes bytes(5);
  const auto failure = failure_of([&, from = &left] { from->receive_exactly(bytes, soon()); });
  EXPECT_EQ(failure.message,
            "the other end of a pair closed the connection after 3 of 5 bytes: Connection reset by "
            "peer");
  EXPECT_EQ(left.try_receive(bytes), 0u);
}

TEST(Socket, KnowsTheUserOfAUnixSocketOnly) {
  auto listener = Listener::unix_socket(unique_name("user"));
  const auto client = Socket::connect_unix(unique_name("user"), soon());
  const auto server = listener.accept(soon());
  EXPECT_EQ(client.peer_user(), ::geteuid());
  EXPECT_EQ(server.peer_user(), ::geteuid());
  EXPECT_THROW((void)client.local_endpoint(), UsageError);
  auto tcp_listener = Listener::tcp("127.0.0.1");
  const auto [left, right] = connected(tcp_listener);
  EXPECT_THROW((void)left.peer_user(), UsageError);
}

TEST(Socket, NoFailureLeavesADescriptorOpen) {
  const auto before = num_open_descriptors();
  for (int i = 0; i < 20; ++i) {
    const auto endpoint = Listener::tcp("::1").endpoint();
    EXPECT_THROW((void)Socket::connect(endpoint, soon()), SystemError);
    EXPECT_THROW((void)Socket::connect_unix(unique_name("gone"), soon()), SystemError);
    EXPECT_THROW((void)Socket(FileDescriptor::open("/dev/null", O_RDONLY), "no socket"),
                 SystemError);
    auto listener = Listener::tcp("127.0.0.1");
    auto [client, server] = connected(listener);
    expect_echo(client, server);
  }
  EXPECT_EQ(num_open_descriptors(), before);
}

// Rank 0 listens and sends its port through a Unix socket; rank 1 connects and is killed.
TEST(SocketOfProcesses, AKilledPeerIsNoticedAtOnce) {
  const auto run = [](testing::Rank& self) {
    const auto name = fmt::format("lockstep socket_test killed {}", ::getppid());
    if (self.rank() == 0) {
      auto local_listener = Listener::unix_socket(name);
      auto tcp_listener = Listener::tcp("127.0.0.1");
      self.barrier(soon());
      auto local = local_listener.accept(soon());
      local.send_all(bytes_of(fmt::format("{:05}", tcp_listener.endpoint().port)), soon());
      auto tcp = tcp_listener.accept(soon());
      self.note("connected");
      for (auto* socket : {&tcp, &local}) {
        Bytes bytes(1);
        const auto failure = failure_of([&] { socket->receive_exactly(bytes, soon()); });
        EXPECT_EQ(failure.error_number, ECONNRESET) << failure.message;
        EXPECT_TRUE(socket->peer_lost());
      }
      return;
    }
    self.barrier(soon());
    auto local = Socket::connect_unix(name, soon());
    EXPECT_EQ(local.peer_user(), ::geteuid());
    std::array<char, 5> digits{};
    local.receive_exactly(std::as_writable_bytes(std::span(digits)), soon());
    const auto port = std::stoi(std::string(digits.data(), digits.size()));
    const auto tcp = Socket::connect({"127.0.0.1", static_cast<std::uint16_t>(port)}, soon());
    self.note(kWaitingToBeKilled);
    for (;;) ::pause();
  };
  kill_rank_1(run, "connected");
}

}  // namespace
}  // namespace lockstep
