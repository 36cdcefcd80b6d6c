// A data set from a function that writes one sample: the shortest way to use your own data. One
// call per sample is acceptable if reading a sample takes microseconds or more; otherwise derive
// from Dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "lockstep/data/dataset.h"

namespace lockstep {

struct SampleDatasetOptions {
  std::string name = "a SampleDataset";
  std::uint64_t id = 0;  // identifies the data in a checkpoint; set it if the data can change
};

class SampleDataset final : public Dataset {
 public:
  /// Writes sample `index` into the single row of `row`. The loader's workers call it concurrently.
  using Write = std::function<void(std::int64_t index, const Rows& row)>;

  SampleDataset(std::int64_t size, SampleLayout layout, Write write,
                SampleDatasetOptions options = {})
      : size_(size),
        layout_(std::move(layout)),
        write_(std::move(write)),
        options_(std::move(options)) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override {
    std::int64_t row = 0;
    for (const auto index : indices) write_(index, rows.part(row++, 1));
  }
  [[nodiscard]] std::uint64_t id() const override { return options_.id; }
  [[nodiscard]] std::string name() const override { return options_.name; }

 private:
  std::int64_t size_;
  SampleLayout layout_;
  Write write_;
  SampleDatasetOptions options_;
};

}  // namespace lockstep
