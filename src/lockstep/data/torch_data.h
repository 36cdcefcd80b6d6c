// A torch::data data set as one of ours, so that it gets exact resumption, epochs that reshuffle
// and shares without repeats:
//
//   TorchData data(torch::data::datasets::MNIST(path).map(Normalize<>(0.13, 0.31)));
//
// Anything with size() and get_batch(indices) will do, stacked or not, whose examples have `data`
// and `target`; they become the fields "input" and "target". This header names no torch::data type.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

struct TorchDataOptions {
  std::string name = "a torch::data data set";
  std::uint64_t id = 0;  // stands for the data in a checkpoint; give one if the data can change
};

/// Copies `tensor` into all rows of a field; its shape is [rows.count(), shape...].
/// Throws UsageError when shape or dtype are not the field's.
void copy_into_rows(const at::Tensor& tensor, const Rows& rows, int field);
/// The layout of examples like this one.
[[nodiscard]] SampleLayout layout_of_example(const at::Tensor& data, const at::Tensor& target);

template <typename Theirs>
class TorchData final : public Dataset {
 public:
  /// Reads the first sample to learn the layout. get_batch() is called by several workers at once,
  /// on this one object: with data that minds, use one worker.
  explicit TorchData(Theirs theirs, TorchDataOptions options = {})
      : theirs_(std::move(theirs)),
        options_(std::move(options)),
        size_(static_cast<std::int64_t>(theirs_.size().value())),
        layout_(first_layout()) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override {
    const std::vector<std::size_t> wanted(indices.begin(), indices.end());
    auto batch = theirs_.get_batch(wanted);
    if constexpr (requires { batch.data; }) {
      copy_into_rows(batch.data, rows, 0);
      copy_into_rows(batch.target, rows, 1);
    } else {
      std::int64_t row = 0;
      for (const auto& example : batch) {
        const auto one = rows.part(row++, 1);
        copy_into_rows(example.data.unsqueeze(0), one, 0);
        copy_into_rows(example.target.unsqueeze(0), one, 1);
      }
    }
  }
  [[nodiscard]] std::uint64_t id() const override { return options_.id; }
  [[nodiscard]] std::string name() const override { return options_.name; }

 private:
  [[nodiscard]] SampleLayout first_layout() const {
    auto batch = theirs_.get_batch(std::vector<std::size_t>{0});
    if constexpr (requires { batch.data; }) {
      return layout_of_example(batch.data[0], batch.target[0]);
    } else {
      return layout_of_example(batch.front().data, batch.front().target);
    }
  }

  mutable Theirs theirs_;  // get_batch() of torch::data is not const
  TorchDataOptions options_;
  std::int64_t size_;
  SampleLayout layout_;
};

}  // namespace lockstep
