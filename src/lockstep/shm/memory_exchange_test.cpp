#include "lockstep/shm/memory_exchange_internal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::Rank;

std::unique_ptr<SocketExchange> make_exchange(SocketExchange::ListeningSocket& listening,
                                              const std::string& where, int member, int size) {
  return member == 0 ? SocketExchange::accept(std::move(listening), test_secret(), size, soon())
                     : SocketExchange::connect(where, test_secret(), member, soon());
}

TEST(MemoryExchange, AllMembersMapTheSameMemory) {
  auto listening = SocketExchange::listen();
  const auto where = listening.name;
  testing::run_ranks_as_threads(4, [&](Rank& self) {
    const auto exchange = make_exchange(listening, where, self.rank(), 4);
    EXPECT_EQ(exchange->processes().size(), 4U);
    for (const auto process : exchange->processes())
      EXPECT_EQ(process, ProcessIdentity::of(::getpid()));
    for (const std::size_t bytes : {std::size_t{4096}, std::size_t{1} << 20}) {
      const auto memory = exchange->make(bytes, soon(), {});
      memory->bytes()[static_cast<std::size_t>(self.rank())] = std::byte{9};
      self.barrier(soon());
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(memory->bytes()[i], std::byte{9});
    }
  });
}

TEST(MemoryExchange, AConnectionWithoutTheSecretIsRefusedAndTheMembersStillConnect) {
  auto listening = SocketExchange::listen();
  const auto where = listening.name;
  testing::run_ranks_as_threads(3, [&](Rank& self) {
    if (self.rank() == 2) {
      EXPECT_THROW((void)SocketExchange::connect(where, test_secret(8), 1, soon()), Error);
      return;
    }
    if (self.rank() == 1) std::this_thread::sleep_for(50ms);  // the other connection comes first
    EXPECT_NO_THROW((void)make_exchange(listening, where, self.rank(), 2)->make(4096, soon(), {}));
  });
}

TEST(MemoryExchange, AnInvalidMemberNumberIsRefused) {
  auto listening = SocketExchange::listen();
  const auto where = listening.name;
  testing::run_ranks_as_threads(3, [&](Rank& self) {
    if (self.rank() == 2) {
      EXPECT_THROW((void)SocketExchange::connect(where, test_secret(), 7, soon()), Error);
    } else {
      if (self.rank() == 1) std::this_thread::sleep_for(50ms);
      EXPECT_NO_THROW((void)make_exchange(listening, where, self.rank(), 2));
    }
  });
}

TEST(MemoryExchange, MissingMembersAreNamedAtTheDeadline) {
  try {
    (void)SocketExchange::accept(SocketExchange::listen(), test_secret(), 3, Deadline::after(50ms));
    ADD_FAILURE() << "no error";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ETIMEDOUT);
    EXPECT_NE(std::string(error.what()).find("members 1, 2 of a group of 3"), std::string::npos)
        << error.what();
  }
}

TEST(MemoryExchange, AnExceptionOfTheWatchEndsTheWait) {
  const auto begin = std::chrono::steady_clock::now();
  const auto give_up = [] { throw PeerError(1, "gone"); };
  EXPECT_THROW(
      (void)SocketExchange::accept(SocketExchange::listen(), test_secret(), 2, soon(), give_up),
      PeerError);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(MemoryExchange, AFailedAllocationOfTheRootThrowsOnAllMembers) {
  auto listening = SocketExchange::listen();
  const auto where = listening.name;
  const auto begin = std::chrono::steady_clock::now();
  testing::run_ranks_as_threads(3, [&](Rank& self) {
    const auto exchange = make_exchange(listening, where, self.rank(), 3);
    EXPECT_THROW((void)exchange->make(std::size_t{1} << 62, soon(), {}), SystemError);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

TEST(MemoryExchange, AMemberThatHasLeftDoesNotKeepTheMemoryFromTheOthers) {
  auto listening = SocketExchange::listen();
  const auto where = listening.name;
  testing::run_ranks_as_threads(3, [&](Rank& self) {
    auto exchange = make_exchange(listening, where, self.rank(), 3);
    if (self.rank() == 1) exchange.reset();
    self.barrier(soon());
    if (self.rank() == 0) {
      EXPECT_THROW((void)exchange->make(4096, soon(), {}), SystemError);
    } else if (self.rank() == 2) {
      EXPECT_NO_THROW((void)exchange->make(4096, soon(), {}));
    }
  });
}

TEST(MemoryExchange, AMissingSocketIsASystemError) {
  EXPECT_THROW((void)SocketExchange::connect("lockstep-group-of-nobody", test_secret(), 1,
                                             Deadline::after(50ms)),
               SystemError);
}

}  // namespace
}  // namespace lockstep
