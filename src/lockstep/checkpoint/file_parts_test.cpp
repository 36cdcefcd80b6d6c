#include "lockstep/checkpoint/file_parts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

std::vector<std::byte> random_bytes(RandomStream& random, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// Ascending positions from 0 to `end`, at most `longest` bytes apart.
std::vector<std::uint64_t> cuts(RandomStream& random, std::uint64_t end, std::uint64_t longest) {
  std::vector<std::uint64_t> all{0};
  while (all.back() < end) all.push_back(std::min(end, all.back() + 1 + random.below(longest)));
  return all;
}

FileExtent extent(const std::vector<std::byte>& file, std::uint64_t begin, std::uint64_t end) {
  return {begin, std::span(file).subspan(begin, end - begin)};
}

TEST(FileParts, CombineToTheDigestOfTheWholeForExtentsOfAnyLengthOnAnyNumberOfRanks) {
  RandomStream random({1, random_purpose("file parts")}, 0, 0);
  for (int round = 0; round < 2000; ++round) {
    const auto file = random_bytes(random, random.below(200));
    const auto ranks = 1 + random.below(5);
    std::vector<PartDigest> digests(ranks, PartDigest("f", file.size()));
    const auto at = cuts(random, file.size(), 1 + random.below(30));
    for (std::size_t i = 0; i + 1 < at.size(); ++i) {
      digests[random.below(ranks)].add(extent(file, at[i], at[i + 1]));
    }
    std::vector<FilePart> parts;
    for (const auto& each : digests) parts.push_back(each.result());
    const std::vector<FileRecord> expected{{"f", file.size(), digest(file)}};
    ASSERT_EQ(combine_parts(parts), expected) << file.size() << " bytes, " << ranks << " ranks";
  }
}

TEST(FileParts, RefuseBytesThatNoRankOrTwoRanksHaveWritten) {
  RandomStream random({2, random_purpose("file parts")}, 0, 0);
  for (int round = 0; round < 500; ++round) {
    const auto file = random_bytes(random, 20 + random.below(100));
    auto at = cuts(random, file.size(), 1 + random.below(30));
    PartDigest first("f", file.size());
    PartDigest second("f", file.size());
    const auto odd = random.below(at.size() - 1);  // missing, double, or moved by a byte
    const auto kind = random.below(3);
    for (std::size_t i = 0; i + 1 < at.size(); ++i) {
      auto piece = extent(file, at[i], at[i + 1]);
      if (i == odd && kind == 0) continue;
      if (i == odd && kind == 1) second.add(piece);
      if (i == odd && kind == 2) ++piece.position;
      (i % 2 == 0 ? first : second).add(piece);
    }
    const std::vector<FilePart> parts{first.result(), second.result()};
    EXPECT_THROW((void)combine_parts(parts), UsageError) << round;
  }
}

TEST(FileParts, RefuseRanksThatDisagreeOnTheLengthAndNameTheFile) {
  const std::vector<FilePart> parts{PartDigest("model.safetensors", 10).result(),
                                    PartDigest("model.safetensors", 12).result()};
  try {
    (void)combine_parts(parts);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("model.safetensors has 10 bytes on one rank and 12"),
              std::string::npos)
        << error.what();
  }
}

TEST(FileParts, KeepTheOrderOfTheFirstRank) {
  std::vector<FilePart> parts;
  for (const auto* name : {"b", "a", "rank-0", "b", "a", "rank-1"}) {
    PartDigest part(name, 8);
    parts.push_back(part.result());
  }
  const std::vector<std::byte> eight(8);
  for (const std::size_t i : {0U, 1U, 2U, 5U}) {
    PartDigest part(parts[i].name, 8);
    part.add({0, eight});
    parts[i] = part.result();
  }
  std::vector<std::string> names;
  for (const auto& record : combine_parts(parts)) names.push_back(record.name);
  EXPECT_EQ(names, (std::vector<std::string>{"b", "a", "rank-0", "rank-1"}));
}

}  // namespace
}  // namespace lockstep
