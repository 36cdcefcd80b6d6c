#include "lockstep/net/listener.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/testing/soon.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using testing::soon;

TEST(Listener, EverySpellingOfTheWildcardAddressIsRefused) {
  for (const auto* host : {"", "0.0.0.0", "::", "0", "0x0", "0.0", "::0", "0:0:0:0:0:0:0:0",
                           "::ffff:0.0.0.0", "::ffff:0:0", "::0.0.0.0"}) {
    try {
      (void)Listener::tcp(host);
      ADD_FAILURE() << "listens on all addresses: " << host;
    } catch (const UsageError& error) {
      const std::string said = error.what();
      EXPECT_EQ(said.rfind(fmt::format("host \"{}\" means every address", host), 0), 0u) << said;
    }
  }
}

TEST(Listener, ReportsItsAddress) {
  const auto four = Listener::tcp("127.0.0.1");
  EXPECT_EQ(four.endpoint().host, "127.0.0.1");
  EXPECT_NE(four.endpoint().port, 0);
  EXPECT_EQ(four.where(), four.endpoint().to_string());
  const auto six = Listener::tcp("::1");
  EXPECT_EQ(six.where(), fmt::format("[::1]:{}", six.endpoint().port));
  const auto name = fmt::format("lockstep listener_test {}", ::getpid());
  const auto local = Listener::unix_socket(name);
  EXPECT_EQ(local.where(), fmt::format("the Unix socket \"{}\"", name));
  EXPECT_THROW((void)local.endpoint(), UsageError);
}

TEST(Listener, RandomNamesHaveTheirPrefixAndNoOtherListenersName) {
  const std::string prefix = "lockstep-test-";
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) {
    auto listener = Listener::unix_random(prefix);
    const auto name = listener.unix_name();
    ASSERT_EQ(name.size(), prefix.size() + 32) << name;
    EXPECT_TRUE(name.starts_with(prefix)) << name;
    EXPECT_EQ(name.find_first_not_of("0123456789abcdef", prefix.size()), std::string::npos) << name;
    EXPECT_TRUE(names.insert(name).second) << "twice: " << name;
    const auto client = Socket::connect_unix(name, soon());
    EXPECT_TRUE(listener.try_accept());
  }
  EXPECT_THROW((void)Listener::tcp("127.0.0.1").unix_name(), UsageError);
}

TEST(Listener, AnAddressInUseIsNamed) {
  const auto first = Listener::tcp("127.0.0.1");
  try {
    (void)Listener::tcp("127.0.0.1", first.endpoint().port);
    FAIL() << "two listeners have one address";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.what(),
              fmt::format("cannot listen on {}: Address already in use", first.where()));
  }
  const auto name = fmt::format("lockstep listener_test {}", ::getpid());
  const auto local = Listener::unix_socket(name);
  EXPECT_THROW((void)Listener::unix_socket(name), SystemError);
}

TEST(Listener, AnAddressOfAnotherMachineIsRefused) {
  try {
    (void)Listener::tcp("203.0.113.7");  // reserved for documentation
    FAIL() << "listens on an address of another machine";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EADDRNOTAVAIL);
  }
}

TEST(Listener, APortCanBeReusedRightAfterItsConnectionsEnd) {
  std::uint16_t port = 0;
  for (int i = 0; i < 3; ++i) {
    auto listener = Listener::tcp("127.0.0.1", port);
    port = listener.endpoint().port;
    const auto client = Socket::connect(listener.endpoint(), soon());
    { const auto closes_first = listener.accept(soon()); }
  }
}

TEST(Listener, UnixNamesHaveOneTo107Bytes) {
  const auto longest = std::string(90, 'n') + fmt::format("{:017}", ::getpid());
  auto listener = Listener::unix_socket(longest);
  EXPECT_NO_THROW((void)Socket::connect_unix(longest, soon()));
  EXPECT_THROW((void)Listener::unix_socket(longest + "n"), UsageError);
  EXPECT_THROW((void)Listener::unix_socket(""), UsageError);
  EXPECT_THROW((void)Socket::connect_unix("", soon()), UsageError);
}

TEST(Listener, HasNothingToAcceptUntilAClientConnects) {
  auto listener = Listener::tcp("127.0.0.1");
  EXPECT_FALSE(listener.try_accept().has_value());
  const auto client = Socket::connect(listener.endpoint(), soon());
  pollfd ready{listener.number(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 10'000), 1);
  EXPECT_TRUE(listener.try_accept().has_value());
  EXPECT_FALSE(listener.try_accept().has_value());
}

TEST(Listener, AcceptingEndsAtItsDeadline) {
  auto listener = Listener::tcp("127.0.0.1");
  try {
    (void)listener.accept(Deadline::after(50ms));
    FAIL() << "accepted a connection without a client";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.what(), fmt::format("waited for a connection to {} until the deadline: "
                                        "Connection timed out",
                                        listener.where()));
  }
}

TEST(Listener, LackOfDescriptorsIsAnErrorAndTheConnectionStaysPending) {
  auto listener = Listener::tcp("127.0.0.1");
  const auto client = Socket::connect(listener.endpoint(), soon());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{static_cast<rlim_t>(client.number() + 1), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  int error_number = 0;
  try {
    (void)listener.try_accept();
  } catch (const SystemError& error) {
    error_number = error.error_number();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error_number, EMFILE);
  EXPECT_TRUE(listener.try_accept().has_value());
}

TEST(Listener, ListensInARangeOfPorts) {
  const auto taken = Listener::tcp("127.0.0.1");
  const auto port = taken.endpoint().port;
  const auto first = static_cast<std::uint16_t>(std::min<int>(port, 65000));
  const PortRange range{first, static_cast<std::uint16_t>(first + 500)};
  for (int i = 0; i < 20; ++i) {
    const auto found = Listener::tcp("127.0.0.1", range).endpoint().port;
    EXPECT_GE(found, range.first);
    EXPECT_LE(found, range.last);
    EXPECT_NE(found, port);
  }
  try {
    (void)Listener::tcp("127.0.0.1", PortRange{port, port});
    FAIL() << "the port is in use";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EADDRINUSE);
    EXPECT_NE(std::string(error.what()).find(fmt::format("all ports from {0} to {0}", port)),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep
