#include "lockstep/checkpoint/old_part_names.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Names = std::map<std::string, std::string>;

TEST(OldPartNames, AnOptimizerIsFoundUnderTheNameOfItsType) {
  for (const std::string old : {"adam", "adam_w", "sgd"}) {
    EXPECT_EQ(old_part_names({"model", old}, {"model", "optimizer"}), (Names{{"optimizer", old}}));
  }
  EXPECT_EQ(old_part_names({"grad_scaler", "sgd"}, {"optimizer", "scaler"}),
            (Names{{"optimizer", "sgd"}, {"scaler", "grad_scaler"}}));
}

TEST(OldPartNames, APartThatIsSavedUnderItsNameKeepsIt) {
  EXPECT_EQ(old_part_names({"adam_w", "optimizer"}, {"optimizer"}), Names{});
  EXPECT_EQ(old_part_names({"model"}, {"model", "optimizer"}), Names{});
}

TEST(OldPartNames, AnOldNameStaysWithThePartThatIsTrackedUnderIt) {
  EXPECT_EQ(old_part_names({"adam_w"}, {"adam_w", "optimizer"}), Names{});
  EXPECT_EQ(old_part_names({"adam_w", "sgd"}, {"adam_w", "optimizer"}),
            (Names{{"optimizer", "sgd"}}));
}

TEST(OldPartNames, TwoOldNamesForOnePartAreAmbiguous) {
  EXPECT_EQ(old_part_names({"adam_w", "sgd"}, {"optimizer"}), Names{});
}

}  // namespace
}  // namespace lockstep
