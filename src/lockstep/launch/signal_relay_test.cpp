#include "lockstep/launch/signal_relay.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct sigaction action_of(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action;
}

TEST(SignalRelay, ASignalBecomesReadable) {
  const SignalRelay relay;
  EXPECT_EQ(relay.try_receive(), std::nullopt);
  for (const int signal : SignalRelay::kSignals) {
    ::kill(::getpid(), signal);
    pollfd wait{relay.descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, 5'000), 1);
    EXPECT_EQ(relay.try_receive(), signal);
  }
}

TEST(SignalRelay, AnyThreadMayReceiveIt) {
  const SignalRelay relay;
  std::thread([] { ::raise(SIGTERM); }).join();
  EXPECT_EQ(relay.try_receive(), SIGTERM);
}

TEST(SignalRelay, HandlersAreRestored) {
  ::signal(SIGUSR2, SIG_IGN);
  { const SignalRelay relay; }
  EXPECT_EQ(action_of(SIGUSR2).sa_handler, SIG_IGN);
  EXPECT_EQ(action_of(SIGTERM).sa_handler, SIG_DFL);
  ::signal(SIGUSR2, SIG_DFL);
}

TEST(SignalRelay, AHangupThatIsIgnoredStaysIgnored) {
  ::signal(SIGHUP, SIG_IGN);
  {
    const SignalRelay relay;
    ::raise(SIGHUP);
    EXPECT_EQ(relay.try_receive(), std::nullopt);
  }
  ::signal(SIGHUP, SIG_DFL);
}

TEST(SignalRelay, ThereIsOneAtATime) {
  const SignalRelay first;
  EXPECT_THROW(SignalRelay(), UsageError);
  ::raise(SIGTERM);
  EXPECT_EQ(first.try_receive(), SIGTERM) << "the first one still works";
}

}  // namespace
}  // namespace lockstep
