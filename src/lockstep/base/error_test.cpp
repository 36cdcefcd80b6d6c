#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "lockstep/base/assert.h"

namespace lockstep {
namespace {

TEST(Error, SystemErrorEndsWithTheSystemsDescription) {
  const SystemError error("cannot open /data/train.bin", ENOENT);
  EXPECT_STREQ(error.what(), "cannot open /data/train.bin: No such file or directory");
  EXPECT_EQ(error.error_number(), ENOENT);
}

TEST(Error, PeerErrorNamesTheRank) {
  const PeerError error(3, "rank 3 was killed by signal 9");
  EXPECT_EQ(error.rank(), 3);
}

TEST(Error, EachKindHasAStableName) {
  EXPECT_EQ(UsageError("").kind(), "usage");
  EXPECT_EQ(PeerError(0, "").kind(), "peer");
  EXPECT_EQ(SystemError("", 0).kind(), "system");
}

TEST(Error, AllKindsAreCaughtAsOne) {
  EXPECT_THROW(throw UsageError("x"), Error);
  EXPECT_THROW(throw PeerError(1, "x"), Error);
  EXPECT_THROW(throw SystemError("x", EIO), Error);
}

TEST(AssertDeathTest, BrokenInvariantAbortsWithItsReason) {
  const int buckets = 0;
  EXPECT_DEATH(LOCKSTEP_ASSERT(buckets > 0, "a plan has at least one bucket"),
               "a plan has at least one bucket");
}

}  // namespace
}  // namespace lockstep
