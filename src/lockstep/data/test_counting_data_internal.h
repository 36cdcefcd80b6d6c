// For tests of this room: a data set whose rows contain their sample's index, and a test fixture
// with a watchdog.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/testing/watchdog.h"

namespace lockstep {

/// Sample i has "input": the floats i, i + 0.5 and "target": −i.
class CountingData : public Dataset {
 public:
  explicit CountingData(std::int64_t size) : size_(size) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override {
    ++num_reads;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      before_sample(indices[i]);
      const auto row = static_cast<std::int64_t>(i);
      rows.row<float>(0, row)[0] = static_cast<float>(indices[i]);
      rows.row<float>(0, row)[1] = static_cast<float>(indices[i]) + 0.5F;
      rows.row<std::int64_t>(1, row)[0] = -indices[i];
    }
  }
  [[nodiscard]] std::uint64_t id() const override { return 0xC0; }
  [[nodiscard]] std::string name() const override { return "counting.bin"; }

  std::function<void(std::int64_t)> before_sample = [](std::int64_t) {};
  mutable std::atomic<int> num_reads = 0;

 private:
  std::int64_t size_;
  SampleLayout layout_{{"input", at::kFloat, {2}}, {"target", at::kLong, {}}};
};

inline void expect_right(const Batch& batch) {
  ASSERT_EQ(batch.input().sizes(), (std::vector<std::int64_t>{batch.count(), 2}));
  ASSERT_EQ(batch.target().sizes(), (std::vector<std::int64_t>{batch.count()}));
  for (std::int64_t row = 0; row < batch.count(); ++row) {
    const auto sample = batch.samples[static_cast<std::size_t>(row)];
    ASSERT_EQ(batch.input().const_data_ptr<float>()[2 * row], static_cast<float>(sample));
    ASSERT_EQ(batch.input().const_data_ptr<float>()[2 * row + 1],
              static_cast<float>(sample) + 0.5F);
    ASSERT_EQ(batch.target().const_data_ptr<std::int64_t>()[row], -sample);
  }
}

class LoaderTest : public ::testing::Test {
  testing::Watchdog watchdog_{std::chrono::seconds(120),
                              [] { return std::string("a loader test"); }};
};

}  // namespace lockstep
