// A torch::data data set as a lockstep Dataset, with exact resumption, a new order in each epoch,
// and shards without repeated samples:
//
//   TorchData data(torch::data::datasets::MNIST(path).map(
//       torch::data::transforms::Normalize<>(0.13, 0.31)));
//
// Any type with size() and get_batch(indices) works, stacked or not, if its examples have `data`
// and `target`. They become the fields "input" and "target". This header includes no torch::data
// header.
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
  std::uint64_t id = 0;  // identifies the data in a checkpoint; set it if the data can change
};

/// Copies `tensor`, [rows.count(), shape...], into all rows of a field.
/// Throws UsageError if its shape or dtype differs from the field's.
void copy_into_rows(const at::Tensor& tensor, const Rows& rows, int field);
/// The layout of an example: fields "input" and "target".
[[nodiscard]] SampleLayout layout_of_example(const at::Tensor& data, const at::Tensor& target);

template <typename Theirs>
class TorchData final : public Dataset {
 public:
  /// Takes ownership of the data set and reads its first sample for the layout. The loader's
  /// workers call get_batch() concurrently on this object; if it is not thread-safe, use workers
  /// <= 1.
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
