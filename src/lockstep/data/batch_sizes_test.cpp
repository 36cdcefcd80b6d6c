#include "lockstep/data/batch_sizes.h"

#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string refusal(const BatchRequest& request) {
  try {
    const auto sizes = derive_batch_sizes(request);
    return "accepted as " + describe(sizes);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(BatchSizes, DerivesWhatIsLeftOut) {
  EXPECT_EQ(derive_batch_sizes({.world = 4, .local = 8}), (BatchSizes{8, 1, 4}));
  EXPECT_EQ(derive_batch_sizes({.world = 4, .global = 64}), (BatchSizes{16, 1, 4}));
  EXPECT_EQ(derive_batch_sizes({.world = 4, .local = 8, .global = 64}), (BatchSizes{8, 2, 4}));
  EXPECT_EQ(derive_batch_sizes({.world = 4, .global = 64, .accumulation = 4}),
            (BatchSizes{4, 4, 4}));
  EXPECT_EQ(derive_batch_sizes({.world = 4, .local = 8, .accumulation = 3}), (BatchSizes{8, 3, 4}));
  EXPECT_EQ(derive_batch_sizes({.world = 4, .local = 8, .global = 64, .accumulation = 2}),
            (BatchSizes{8, 2, 4}));
}

TEST(BatchSizes, TheProductAlwaysHolds) {
  for (int world = 1; world <= 12; ++world) {
    for (std::int64_t global = 1; global <= 100; ++global) {
      for (std::int64_t local = 1; local <= 20; ++local) {
        if (global % (world * local) != 0) {
          EXPECT_THROW((void)derive_batch_sizes({.world = world, .local = local, .global = global}),
                       UsageError);
          continue;
        }
        const auto sizes = derive_batch_sizes({.world = world, .local = local, .global = global});
        EXPECT_EQ(sizes.local * sizes.accumulation * sizes.world, global);
      }
    }
  }
}

TEST(BatchSizes, RefusesContradictionsWithTheNearestChoices) {
  EXPECT_EQ(refusal({.world = 3, .global = 64}),
            "a global batch of 64 is not divisible by 3 ranks; use a global batch of 63 or 66, or "
            "one of these numbers of ranks: 2, 4, 1, 8");
  EXPECT_EQ(refusal({.world = 4, .local = 6, .global = 64}),
            "each of 4 ranks takes 16 samples of the global batch of 64, which is not divisible by "
            "a local batch of 6; use a local batch of 4, or a global batch of 48 or 72");
  EXPECT_EQ(refusal({.world = 4, .local = 8, .global = 64, .accumulation = 3}),
            "local 8 × accumulation 3 × world 4 is 96, but the global batch given is 64; use "
            "accumulation 2, or leave one of the three out");
  EXPECT_EQ(refusal({.world = 2, .global = 10, .accumulation = 4}),
            "each of 2 ranks takes 5 samples of the global batch of 10, which is not divisible by "
            "4 micro-batches; use accumulation 1, or a global batch of 8 or 16");
  EXPECT_EQ(refusal({.world = 2}), "no batch size is given; give a local or a global batch size");
  EXPECT_EQ(refusal({.world = 0, .local = 1}), "a world of 0 is invalid; it must be at least 1");
}

TEST(BatchSizes, AnotherWorldKeepsTheGlobalBatchOrTheLocalOne) {
  const BatchSizes eight{16, 4, 8};
  EXPECT_EQ(change_world(eight, 4, Keep::global), (BatchSizes{16, 8, 4}));
  EXPECT_EQ(change_world(eight, 32, Keep::global), (BatchSizes{16, 1, 32}));
  EXPECT_EQ(change_world(eight, 64, Keep::global), (BatchSizes{8, 1, 64}));
  EXPECT_EQ(change_world(eight, 3, Keep::local), (BatchSizes{16, 4, 3}));
  EXPECT_THROW((void)change_world(eight, 3, Keep::global), UsageError);
  // A shard of 12 is not divisible by 8: the largest smaller divisor is used.
  EXPECT_EQ(change_world({8, 1, 3}, 2, Keep::global), (BatchSizes{6, 2, 2}));
}

TEST(BatchSizes, SaysEveryFactor) {
  EXPECT_EQ(describe(BatchSizes{16, 4, 8}),
            "global batch 512 = local 16 × accumulation 4 × world 8");
}

}  // namespace
}  // namespace lockstep
