#include "lockstep/metrics/csv_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/metrics/test_folder_internal.h"

namespace lockstep {
namespace {

using Cells = std::vector<CsvWriter::Cell>;

class CsvWriterTest : public FolderTest {
 protected:
  [[nodiscard]] std::string table() const { return contents(path_); }

  const std::string path_ = path("table.csv");
};

TEST_F(CsvWriterTest, TheFirstRowNamesTheColumns) {
  CsvWriter writer(path_);
  writer.row(1, Cells{{"loss", 5.25}, {"lr", 1e-3}});
  writer.row(2, Cells{{"lr", 2e-3}, {"loss", 5}});
  EXPECT_EQ(table(), "step,loss,lr\n1,5.25,0.001\n2,5,0.002\n");
}

TEST_F(CsvWriterTest, AValueThatIsMissingIsEmptyAndANewOneIsTheLastColumn) {
  CsvWriter writer(path_);
  writer.row(1, Cells{{"loss", 5}, {"lr", 1}});
  writer.row(2, Cells{{"norm", 3}, {"lr", 1}});
  writer.row(3, Cells{{"loss", 4}});
  EXPECT_EQ(table(), "step,loss,lr,norm\n1,5,1,\n2,,1,3\n3,4,,\n");
}

TEST_F(CsvWriterTest, NumbersAreReadBackExactly) {
  CsvWriter writer(path_);
  writer.row(1, Cells{{"x", 0.1},
                      {"y", 1.0 / 3},
                      {"z", std::nan("")},
                      {"w", -std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(table(), "step,x,y,z,w\n1,0.1,0.3333333333333333,nan,-inf\n");
}

TEST_F(CsvWriterTest, AResumedTableHasOneHeaderAndDropsTheRowsThatAreRepeated) {
  {
    CsvWriter writer(path_);
    for (int step = 1; step <= 4; ++step) writer.row(step, Cells{{"loss", 10. - step}});
  }
  append(path_, "5,4.");  // truncated by a crash
  CsvWriter writer(path_, {.last_step = 2});
  EXPECT_EQ(table(), "step,loss\n1,9\n2,8\n");
  writer.row(3, Cells{{"loss", 7.5}});
  EXPECT_EQ(table(), "step,loss\n1,9\n2,8\n3,7.5\n");
}

TEST_F(CsvWriterTest, AColumnOfAnExistingTableIsRenamedAndContinued) {
  { CsvWriter(path_).row(1, Cells{{"loss", 5}, {"rate", 1}}); }
  CsvWriter writer(path_, {.last_step = 1, .renamed = {{"rate", "lr"}}});
  EXPECT_EQ(table(), "step,loss,lr\n1,5,1\n");
  writer.row(2, Cells{{"loss", 4}, {"lr", 0.5}});
  EXPECT_EQ(table(), "step,loss,lr\n1,5,1\n2,4,0.5\n");
}

TEST_F(CsvWriterTest, ARowWithoutNumbersIsItsStep) {
  CsvWriter writer(path_);
  writer.row(1, {});
  writer.row(2, Cells{{"loss", 1}});
  EXPECT_EQ(table(), "step,loss\n1,\n2,1\n");
}

TEST_F(CsvWriterTest, ANewRunInTheFolderKeepsNoRow) {
  { CsvWriter(path_).row(0, Cells{{"loss", 1}}); }
  const CsvWriter writer(path_);
  EXPECT_EQ(table(), "step,loss\n");
}

TEST_F(CsvWriterTest, AFileThatIsNotATableIsRefusedAndUnchanged) {
  for (const std::string text : {"name,age\nAda,36\n", "step,loss\nlast,3\n"}) {
    std::filesystem::remove(path_);
    append(path_, text);
    EXPECT_THROW(CsvWriter(path_, {.last_step = 10}), UsageError);
    EXPECT_EQ(table(), text);
  }
}

TEST_F(CsvWriterTest, AFolderThatDoesNotExistIsNamed) {
  CsvWriter writer(path("nowhere/table.csv"));
  try {
    writer.row(1, Cells{{"loss", 1}});
    FAIL() << "wrote into a folder that does not exist";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere/table.csv"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
