// Rounds of owned elements: every element is in one part of one round of its owner, and no round
// exceeds its buffer.
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/gpu/owned_rounds_internal.h"

namespace lockstep {
namespace {

TEST(OwnedRounds, CoverTheElementsOfEveryOwnerOnceAndFitTheBuffer) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random({seed, random_purpose("owned rounds")}, 0, 0);
    const int ranks = 1 + static_cast<int>(random.below(8));
    std::vector<OwnedPiece> pieces(random.below(12));
    std::vector<int> owner_of;  // by element
    for (auto& piece : pieces) {
      piece = {static_cast<int>(random.below(static_cast<std::uint64_t>(ranks))),
               static_cast<std::int64_t>(random.below(300))};
      owner_of.insert(owner_of.end(), static_cast<std::size_t>(piece.count), piece.owner);
    }
    const Owners owners(ranks, pieces);
    const bool sums = random.below(2) == 0;
    const auto dtype = random.below(2) == 0 ? DType::float32 : DType::uint8;
    const Call call{.kind = sums ? Collective::reduce_to_owners : Collective::gather_from_owners,
                    .dtype = dtype,
                    .count = owners.count(),
                    .owners = &owners};
    const std::size_t buffer = kPieceLine * 8 * (1 + random.below(4));
    const auto wanted = random.below(4) == 0 ? std::nullopt : std::optional(buffer);
    const OwnedRounds rounds(call, wanted);
    if (wanted) {
      EXPECT_LE(rounds.length() * static_cast<std::size_t>(sums ? ranks : 1), buffer);
    } else {
      EXPECT_LE(rounds.count(), 1U);
    }
    std::vector<int> found(owner_of.size() * bytes_of(dtype), -1);  // by byte
    for (std::size_t round = 0; round < rounds.count(); ++round) {
      for (int owner = 0; owner < ranks; ++owner) {
        std::size_t position = 0;
        for (const auto& part : rounds.of(owner, round)) {
          EXPECT_EQ(part.position, position);  // no gap in the buffer
          EXPECT_GT(part.bytes, 0U);
          position += part.bytes;
          for (auto i = part.at; i < part.at + part.bytes; ++i) {
            EXPECT_EQ(found.at(i), -1) << "byte " << i << " is covered twice, seed " << seed;
            found.at(i) = owner;
          }
        }
        EXPECT_LE(position, rounds.length());
      }
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i], owner_of[i / bytes_of(dtype)]) << "byte " << i << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace lockstep
