#include "lockstep/launch/program_path.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Paths = std::vector<std::string>;

TEST(ProgramPath, ANameWithASlashIsAFile) {
  EXPECT_EQ(program_candidates("./a", {{"PATH", "/bin"}}), Paths{"./a"});
}

TEST(ProgramPath, AnyOtherNameIsLookedUpInThePath) {
  EXPECT_EQ(program_candidates("a", {{"PATH", "/x:/y"}}), (Paths{"/x/a", "/y/a"}));
  EXPECT_EQ(program_candidates("a", {{"PATH", "/x::"}}), (Paths{"/x/a", "./a", "./a"}));
  EXPECT_EQ(program_candidates("a", {}), (Paths{"/usr/local/bin/a", "/usr/bin/a", "/bin/a"}));
}

TEST(ProgramPath, AnEmptyNameIsRefused) {
  EXPECT_THROW((void)program_candidates("", {}), UsageError);
}

}  // namespace
}  // namespace lockstep
