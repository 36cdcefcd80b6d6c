#include "lockstep/rendezvous/slurm_nodes.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Names = std::vector<std::string>;
using Counts = std::vector<int>;

TEST(SlurmNodes, RangesAndSingleNumbersAreExpanded) {
  EXPECT_EQ(expand_slurm_nodes("h[0-1]"), (Names{"h0", "h1"}));
  EXPECT_EQ(expand_slurm_nodes("h[0-3,7],x1"), (Names{"h0", "h1", "h2", "h3", "h7", "x1"}));
  EXPECT_EQ(expand_slurm_nodes("login"), (Names{"login"}));
  EXPECT_EQ(expand_slurm_nodes("a,b"), (Names{"a", "b"}));
}

TEST(SlurmNodes, LeadingZerosStay) {
  EXPECT_EQ(expand_slurm_nodes("n[08-10]"), (Names{"n08", "n09", "n10"}));
  EXPECT_EQ(expand_slurm_nodes("n[001,100]"), (Names{"n001", "n100"}));
}

TEST(SlurmNodes, SeveralBracketsAndADomainAreExpanded) {
  EXPECT_EQ(expand_slurm_nodes("r[0-1]n[2-3]"), (Names{"r0n2", "r0n3", "r1n2", "r1n3"}));
  EXPECT_EQ(expand_slurm_nodes("h[1-2].x.org"), (Names{"h1.x.org", "h2.x.org"}));
  EXPECT_EQ(expand_slurm_nodes("gpu-[1-2]-a"), (Names{"gpu-1-a", "gpu-2-a"}));
}

TEST(SlurmNodes, AnInvalidListIsRefusedAndQuoted) {
  for (const char* list : {"", ",", "a,", "h[", "h]", "h[]", "h[1", "h[1-]", "h[-1]", "h[3-1]",
                           "h[a-b]", "h[1,]", "h[[1]]", "h[1-2-3]", "h[0-99999999999]"}) {
    try {
      (void)expand_slurm_nodes(list);
      ADD_FAILURE() << list << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find('"' + std::string(list) + '"'), std::string::npos)
          << error.what();
    }
  }
}

TEST(SlurmNodes, AListOfTooManyNodesIsRefusedBeforeItIsExpanded) {
  EXPECT_THROW((void)expand_slurm_nodes("h[0-65536]"), UsageError);
  EXPECT_THROW((void)expand_slurm_nodes("a[0-999]b[0-999]c[0-999]d[0-999]"), UsageError);
  EXPECT_EQ(expand_slurm_nodes("h[0-65535]").size(), kMaxSlurmNodes);
}

TEST(SlurmNodes, CountsAreRepeated) {
  EXPECT_EQ(expand_slurm_counts("2(x2)"), (Counts{2, 2}));
  EXPECT_EQ(expand_slurm_counts("2(x3),1"), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(expand_slurm_counts("4"), (Counts{4}));
  for (const char* list : {"", "x", "2(x)", "2(x2", "2(x0)", "2(y2)", "-1", "2(x99999)"}) {
    EXPECT_THROW((void)expand_slurm_counts(list), UsageError) << list;
  }
}

}  // namespace
}  // namespace lockstep
