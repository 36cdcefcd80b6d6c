#include "lockstep/launch/line_folder.h"

#include <gtest/gtest.h>

#include "lockstep/base/random.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

constexpr auto kOut = OutputStream::standard_output;
const LineFolder::Time kStart{};

std::vector<std::string> shown(const std::vector<FoldedLine>& lines) {
  std::vector<std::string> result;
  for (const auto& line : lines) {
    std::string text;
    for (const int rank : line.ranks) text += std::to_string(rank);
    result.push_back(text + " " + line.text);
  }
  return result;
}

using Lines = std::vector<std::string>;

TEST(LineFolder, ALineThatAllRanksPrintIsReleasedAtOnce) {
  LineFolder folder(3, 50ms);
  for (int rank = 0; rank < 3; ++rank) folder.feed({rank, kOut, "hello"}, kStart);
  EXPECT_EQ(shown(folder.release_ready(kStart)), Lines{"012 hello"});
}

TEST(LineFolder, ALineThatSomeRanksPrintIsReleasedAfterItsWindow) {
  LineFolder folder(3, 50ms);
  folder.feed({0, kOut, "hello"}, kStart);
  folder.feed({2, kOut, "hello"}, kStart + 10ms);
  EXPECT_EQ(shown(folder.release_ready(kStart + 49ms)), Lines{});
  EXPECT_EQ(folder.next_ready(), kStart + 50ms);
  EXPECT_EQ(shown(folder.release_ready(kStart + 50ms)), Lines{"02 hello"});
  EXPECT_EQ(folder.next_ready(), std::nullopt);
}

TEST(LineFolder, TheLinesOfOneRankAreNeverFoldedWithEachOther) {
  LineFolder folder(2, 50ms);
  for (int i = 0; i < 3; ++i) folder.feed({0, kOut, "again"}, kStart);
  folder.feed({1, kOut, "again"}, kStart);
  EXPECT_EQ(shown(folder.release_all()), (Lines{"01 again", "0 again", "0 again"}));
}

TEST(LineFolder, TheTwoStreamsAreNotFoldedTogether) {
  LineFolder folder(2, 50ms);
  folder.feed({0, kOut, "same"}, kStart);
  folder.feed({1, OutputStream::standard_error, "same"}, kStart);
  EXPECT_EQ(folder.release_all().size(), 2u);
}

TEST(LineFolder, WithOneRankNoLineWaits) {
  LineFolder folder(1, 50ms);
  folder.feed({0, kOut, "a"}, kStart);
  EXPECT_EQ(shown(folder.release_ready(kStart)), Lines{"0 a"});
}

TEST(LineFolder, TheLinesOfEachRankKeepTheirOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random({seed, random_purpose("fold")}, 0, 0);
    LineFolder folder(4, 50ms);
    std::vector<Lines> printed(4);
    std::vector<Lines> read(4);
    const auto collect = [&](const std::vector<FoldedLine>& lines) {
      for (const auto& line : lines) {
        for (const int rank : line.ranks) read[static_cast<std::size_t>(rank)].push_back(line.text);
      }
    };
    for (int i = 0; i < 2000; ++i) {
      const auto rank = random.below(4);
      const auto text = std::to_string(random.below(6));
      printed[rank].push_back(text);
      const auto now = kStart + std::chrono::milliseconds(i);
      folder.feed({static_cast<int>(rank), kOut, text}, now);
      if (random.below(3) == 0) collect(folder.release_ready(now));
    }
    collect(folder.release_all());
    EXPECT_EQ(read, printed) << "seed " << seed;
  }
}

TEST(LineFolder, AFloodOfLinesUsesBoundedMemory) {
  LineFolder folder(2, 50ms);
  std::size_t left = 0;
  for (int i = 0; i < 10'000; ++i) {
    folder.feed({0, kOut, std::to_string(i)}, kStart);
    left += folder.release_ready(kStart).size();
  }
  EXPECT_GE(left, 10'000 - LineFolder::kMostGroups);
}

}  // namespace
}  // namespace lockstep
