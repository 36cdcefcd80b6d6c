#include "lockstep/data/rows.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

const SampleLayout kLayout{{"image", at::kFloat, {2, 3}}, {"label", at::kLong, {}}};

TEST(SampleLayout, KnowsSizesAndNames) {
  EXPECT_EQ(kLayout.sample_bytes(), 2u * 3 * 4 + 8);
  EXPECT_EQ(kLayout.index_of("label"), 1);
  EXPECT_EQ(describe(kLayout), "image: Float [2, 3], label: Long");
  try {
    (void)kLayout.index_of("target");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "the samples have no field \"target\"; their fields are image: Float [2, 3], label: Long");
  }
}

TEST(SampleLayout, RefusesInvalidFields) {
  EXPECT_THROW(SampleLayout(std::vector<Field>{}), UsageError);
  EXPECT_THROW((SampleLayout{{"a"}, {"a"}}), UsageError);
  EXPECT_THROW((SampleLayout{{""}}), UsageError);
  EXPECT_THROW((SampleLayout{{"a", at::kFloat, {3, -1}}}), UsageError);
}

TEST(Rows, BytesValuesAndTensorsAreViewsOfTheSameMemory) {
  const RowsBuffer buffer(kLayout, 4);
  const auto rows = buffer.rows(3);
  EXPECT_EQ(rows.count(), 3);
  EXPECT_EQ(rows.bytes(0).size(), 3u * 24);
  rows.row<float>(0, 2)[5] = 7;
  EXPECT_EQ(rows.values<float>(0)[17], 7);
  EXPECT_EQ(rows.tensor(0).sizes(), (std::vector<std::int64_t>{3, 2, 3}));
  EXPECT_EQ(rows.tensor(0).const_data_ptr<float>()[17], 7);
  EXPECT_EQ(rows.row_tensor(0, 2).const_data_ptr<float>()[5], 7);
  const auto last = rows.part(2, 1);
  EXPECT_EQ(last.count(), 1);
  EXPECT_EQ(last.values<float>(0)[5], 7);
  EXPECT_EQ(last.part(0, 1).row<float>(0, 0)[5], 7);
  EXPECT_THROW((void)rows.values<double>(0), UsageError);
  EXPECT_THROW((void)rows.row<std::int32_t>(1, 0), UsageError);
}

}  // namespace
}  // namespace lockstep
