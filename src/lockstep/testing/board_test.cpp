#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/testing/board_internal.h"

namespace lockstep::testing {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// The rank that `call` complains about, and its words.
template <typename Call>
std::string complaint(int rank, const Call& call) {
  try {
    call();
  } catch (const PeerError& error) {
    EXPECT_EQ(error.rank(), rank);
    return error.what();
  }
  ADD_FAILURE() << "did not complain";
  return "";
}

TEST(Board, HasFrom1To128Ranks) {
  EXPECT_THROW(Board(0, Deadline::after(1s)), UsageError);
  EXPECT_THROW(Board(129, Deadline::after(1s)), UsageError);
  EXPECT_EQ(Board(128, Deadline::after(1s)).size(), 128);
}

TEST(Board, ShowsTheLastNoteOfEachRank) {
  Board board(2, Deadline::after(1s));
  EXPECT_EQ(board.last_note(0), std::nullopt);
  board.note(1, "first");
  board.note(1, "second");
  EXPECT_EQ(board.last_note(1)->text, "second");
  EXPECT_LE(board.last_note(1)->at, Deadline::Clock::now());
  EXPECT_FALSE(board.last_note(0).has_value());
}

TEST(Board, CutsALongNote) {
  Board board(1, Deadline::after(1s));
  board.note(0, std::string(1000, 'x'));
  EXPECT_EQ(board.last_note(0)->text, std::string(239, 'x'));
}

TEST(Board, ANoteIsNeverReadHalfWritten) {
  Board board(1, Deadline::after(10s));
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::size_t i = 0; !stop.stop_requested(); ++i) {
      board.note(0, std::string(239, static_cast<char>('a' + i % 26)));
    }
  });
  for (int i = 0; i < 2000; ++i) {
    const auto note = board.last_note(0);
    if (!note) continue;
    ASSERT_EQ(note->text, std::string(239, note->text.front()));
  }
}

TEST(Board, IsTheSameSeenThroughItsDescriptor) {
  Board board(3, Deadline::after(7s));
  Board other{FileDescriptor(::dup(board.descriptor()))};
  board.note(2, "here");
  EXPECT_EQ(other.size(), 3);
  EXPECT_EQ(other.deadline(), board.deadline());
  EXPECT_EQ(other.last_note(2)->text, "here");
}

TEST(Board, NoRankPassesABarrierBeforeTheLastRankReachesIt) {
  constexpr int kRounds = 200;
  for (int size = 1; size <= 5; ++size) {
    Board board(size, Deadline::after(30s));
    std::atomic<int> arrived = 0;
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        for (int round = 1; round <= kRounds; ++round) {
          ++arrived;
          board.barrier(rank, Deadline::after(30s));
          EXPECT_GE(arrived, round * size);
        }
      });
    }
  }
}

TEST(Board, ABarrierNamesTheRankThatHasNotReachedIt) {
  Board board(3, Deadline::after(1s));
  board.note(1, "still reading");
  std::jthread rank_2([&] { EXPECT_THROW(board.barrier(2, Deadline::after(20ms)), PeerError); });
  const auto words = complaint(1, [&] { board.barrier(0, Deadline::after(20ms)); });
  EXPECT_NE(words.find("rank 1 has not reached barrier 1"), std::string::npos) << words;
  EXPECT_NE(words.find("still reading"), std::string::npos) << words;
}

TEST(Board, ABarrierDoesNotWaitForARankThatHasEnded) {
  Board board(2, Deadline::after(1s));
  std::jthread rank_1([&] { board.leave(1, RankState::failed); });
  const auto words = complaint(1, [&] { board.barrier(0, Deadline::after(60s)); });
  EXPECT_NE(words.find("rank 1 has failed and will not reach"), std::string::npos) << words;
}

TEST(Board, WaitingForANoteEndsWithTheNoteTheRankOrTheDeadline) {
  Board board(1, Deadline::after(1s));
  std::jthread rank_0([&] { board.note(0, "ready"); });
  board.wait_for_note(0, "ready", Deadline::after(30s));
  rank_0.join();
  auto words = complaint(0, [&] { board.wait_for_note(0, "done", Deadline::after(10ms)); });
  EXPECT_NE(words.find("until the deadline without the note \"done\""), std::string::npos) << words;
  rank_0 = std::jthread([&] { board.leave(0, RankState::finished); });
  words = complaint(0, [&] { board.wait_for_note(0, "done", Deadline::after(60s)); });
  EXPECT_NE(words.find("has ended without the note \"done\""), std::string::npos) << words;
}

}  // namespace
}  // namespace lockstep::testing
