#include "lockstep/flat/ownership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

constexpr std::int64_t kKibi = 1024;
constexpr std::int64_t kMebi = 1024 * kKibi;

ParameterFacts of_bytes(std::int64_t bytes, at::ScalarType dtype = at::kFloat, bool trains = true) {
  const auto count = bytes / static_cast<std::int64_t>(elementSize(dtype));
  return {.name = "p", .dtype = dtype, .sizes = {count}, .strides = {1}, .trains = trains};
}

std::int64_t width_of(const Layout& layout, const ShardedSpan& span) {
  const auto dtype = layout.segments[static_cast<std::size_t>(span.segment)].dtype;
  return static_cast<std::int64_t>(elementSize(dtype));
}

std::vector<std::int64_t> bytes_of_spans(const Layout& layout, int num_ranks) {
  std::vector<std::int64_t> bytes;
  for (const auto& span : plan_ownership(layout, num_ranks).spans) {
    bytes.push_back((span.end() - span.begin) * width_of(layout, span));
  }
  return bytes;
}

TEST(Ownership, MergesSmallSlotsAndCutsLongOnes) {
  using Lengths = std::vector<std::int64_t>;
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(kKibi)}), 2), (Lengths{kKibi}));
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(kMebi), of_bytes(4 * kKibi)}), 2),
            (Lengths{kMebi + 4 * kKibi}));
  // Slots are in reverse order. The last 100 KiB are too short for a span of their own.
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(100 * kKibi), of_bytes(300 * kKibi),
                                    of_bytes(200 * kKibi), of_bytes(100 * kKibi)}),
                           2),
            (Lengths{300 * kKibi, 400 * kKibi}));
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(256 * kKibi), of_bytes(300 * kKibi)}), 2),
            (Lengths{300 * kKibi, 256 * kKibi}));
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(32 * kMebi)}), 3), (Lengths{32 * kMebi}));
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(48 * kMebi)}), 3), (Lengths{24 * kMebi, 24 * kMebi}));
  EXPECT_TRUE(bytes_of_spans(lay_out({}), 3).empty());
  EXPECT_EQ(bytes_of_spans(lay_out({of_bytes(kMebi, at::kFloat, false)}), 3), (Lengths{kMebi}));
  EXPECT_THROW((void)plan_ownership({}, 0), UsageError);
}

TEST(Ownership, ShardsAreInTheOrderOfTheRanksAndTakeTurnsAtTheLargerOnes) {
  // 65 and 66 blocks among 4 ranks: one more for rank 0, then one more for ranks 1 and 2.
  const auto layout = lay_out({of_bytes(66 * 4 * kKibi), of_bytes(65 * 4 * kKibi)});
  const auto ownership = plan_ownership(layout, 4);
  ASSERT_EQ(ownership.spans.size(), 2U);
  EXPECT_EQ(ownership.spans[0].ends,
            (std::vector<std::int64_t>{17 << 10, 33 << 10, 49 << 10, 65 << 10}));
  EXPECT_EQ(ownership.spans[1].ends,
            (std::vector<std::int64_t>{81 << 10, 98 << 10, 115 << 10, 131 << 10}));
}

TEST(Ownership, OwnersOfARunCountFromItsBegin) {
  const auto layout = lay_out({of_bytes(kMebi), of_bytes(kMebi), of_bytes(kMebi)});
  const auto ownership = plan_ownership(layout, 2);
  ASSERT_EQ(ownership.spans.size(), 3U);
  const auto owners = owners_of(std::span(ownership.spans).subspan(1, 2));
  EXPECT_EQ(owners.count(), 2 * kMebi / 4);
  const auto own = owners.of(1);
  ASSERT_EQ(own.size(), 2U);
  EXPECT_EQ(own[0], (ElementRange{128 << 10, 128 << 10}));
  EXPECT_EQ(own[1], (ElementRange{384 << 10, 128 << 10}));
}

// Mostly small parameters, some of megabytes, few above the limit of a span; some frozen or empty.
Layout random_layout(std::uint64_t seed) {
  RandomStream random({seed, random_purpose("ownership")}, 0, 0);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(limit)));
  };
  constexpr std::array kDtypes{at::kFloat, at::kBFloat16, at::kDouble};
  const auto num_dtypes = 1 + below(3);
  std::vector<ParameterFacts> parameters;
  for (auto left = below(60); left > 0; --left) {
    const auto choice = below(20);
    const auto bytes = choice == 0   ? 0
                       : choice < 11 ? below(4 * kKibi)
                       : choice < 15 ? below(300 * kKibi)
                       : choice < 19 ? below(4 * kMebi)
                                     : below(100 * kMebi);
    const auto dtype = kDtypes.at(static_cast<std::size_t>(below(num_dtypes)));
    parameters.push_back(of_bytes(bytes, dtype, below(8) != 0));
  }
  return lay_out(parameters);
}

void expect_sound_span(const Layout& layout, const ShardedSpan& span, int num_ranks) {
  const auto& segment = layout.segments[static_cast<std::size_t>(span.segment)];
  if (span.begin >= segment.trains_length) {
    EXPECT_EQ(span.shard(0).count, segment.length - segment.trains_length) << "frozen slots";
    return;
  }
  const auto width = width_of(layout, span);
  const auto bytes = (span.end() - span.begin) * width;
  EXPECT_LE(bytes, kMostSpanBytes);
  EXPECT_GE(bytes, std::min(kLeastSpanBytes, segment.trains_length * width));
  const auto is_slot = [&](int parameter) {
    return layout.slots[static_cast<std::size_t>(parameter)].begin == span.begin;
  };
  EXPECT_TRUE(std::ranges::any_of(segment.parameters, is_slot) ||
              span.begin * width % kShardBlockBytes == 0)
      << "begins inside a slot and a block";
  ASSERT_EQ(span.ends.size(), static_cast<std::size_t>(num_ranks));
  std::int64_t least = bytes;
  std::int64_t most = 0;
  auto expected = span.begin;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto shard = span.shard(rank);
    ASSERT_EQ(shard.begin, expected);
    ASSERT_GE(shard.count, 0);
    expected = shard.begin + shard.count;
    if (expected != span.end() && expected != span.begin) {
      EXPECT_EQ(expected * width % kShardBlockBytes, 0);
    }
    const auto first = shard.begin * width / kShardBlockBytes;
    const auto last = (expected * width + kShardBlockBytes - 1) / kShardBlockBytes;
    const auto blocks = shard.count == 0 ? 0 : last - first;
    least = std::min(least, blocks);
    most = std::max(most, blocks);
  }
  EXPECT_LE(most - least, 1) << "blocks per shard";
}

TEST(Ownership, SpansCoverEveryElementOnceAndKeepTheirBounds) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const auto layout = random_layout(seed);
    for (int num_ranks = 1; num_ranks <= 16; ++num_ranks) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(num_ranks));
      const auto ownership = plan_ownership(layout, num_ranks);
      EXPECT_EQ(ownership, plan_ownership(layout, num_ranks));
      std::vector<std::int64_t> covered(layout.segments.size(), 0);
      int segment = 0;
      for (const auto& span : ownership.spans) {
        EXPECT_GE(span.segment, segment);
        segment = span.segment;
        auto& end = covered.at(static_cast<std::size_t>(segment));
        ASSERT_EQ(span.begin, end) << "a gap or an overlap";
        end = span.end();
        expect_sound_span(layout, span, num_ranks);
        if (HasFailure()) return;
      }
      for (std::size_t i = 0; i < covered.size(); ++i) {
        EXPECT_EQ(covered[i], layout.segments[i].length);
      }
    }
  }
}

// Spans do not depend on the number of ranks, and owners not on where the runs of spans are cut:
// whatever the buckets, each element has the same owner.
TEST(Ownership, IsIndependentOfBucketsAndSpansOfTheRanks) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto layout = random_layout(seed);
    RandomStream random({seed, random_purpose("runs")}, 0, 0);
    const auto one = plan_ownership(layout, 1);
    for (const int num_ranks : {2, 3, 7, 16}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", ranks " + std::to_string(num_ranks));
      const auto ownership = plan_ownership(layout, num_ranks);
      ASSERT_EQ(ownership.spans.size(), one.spans.size());
      const std::span<const ShardedSpan> spans(ownership.spans);
      for (std::size_t first = 0; first < spans.size();) {
        auto count = 1 + random.below(5);
        while (first + count > spans.size() ||
               spans[first + count - 1].segment != spans[first].segment) {
          --count;
        }
        const auto owners = owners_of(spans.subspan(first, count));
        const auto begin = spans[first].begin;
        std::vector<std::vector<ElementRange>> wanted(static_cast<std::size_t>(num_ranks));
        for (const auto& span : spans.subspan(first, count)) {
          for (int rank = 0; rank < num_ranks; ++rank) {
            auto shard = span.shard(rank);
            shard.begin -= begin;
            auto& own = wanted[static_cast<std::size_t>(rank)];
            if (shard.count == 0) continue;
            if (!own.empty() && own.back().begin + own.back().count == shard.begin) {
              own.back().count += shard.count;
            } else {
              own.push_back(shard);
            }
          }
        }
        for (int rank = 0; rank < num_ranks; ++rank) {
          EXPECT_TRUE(std::ranges::equal(owners.of(rank), wanted[static_cast<std::size_t>(rank)]));
        }
        for (std::size_t i = first; i < first + count; ++i) {
          EXPECT_EQ(spans[i].begin, one.spans[i].begin);
          EXPECT_EQ(spans[i].end(), one.spans[i].end());
        }
        if (HasFailure()) return;
        first += count;
      }
    }
  }
}

// Each span has one block more than 16 ranks can divide evenly: a rank owns it in each 16th span.
TEST(Ownership, RanksOwnAboutEqualPartsOfAModel) {
  std::vector<ParameterFacts> parameters;
  for (int i = 0; i < 100; ++i) parameters.push_back(of_bytes(260 * kKibi));
  const auto ownership = plan_ownership(lay_out(parameters), 16);
  ASSERT_EQ(ownership.spans.size(), 100U);
  std::vector<std::int64_t> owned(16);
  for (const auto& span : ownership.spans) {
    for (int rank = 0; rank < 16; ++rank) {
      owned[static_cast<std::size_t>(rank)] += span.shard(rank).count;
    }
  }
  const auto [least, most] = std::ranges::minmax(owned);
  EXPECT_LE(most - least, kShardBlockBytes / 4);
}

}  // namespace
}  // namespace lockstep
