// A data set of tensors in memory: row i of every tensor is sample i. File readers with samples of
// fixed size use it too: a mapped file is a tensor (file_datasets.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// Converts bytes to floats, (value / 255 − mean) / stddev, while they are read; in memory, images
/// stay bytes. Each vector has one value, or one per channel. The channel is a sample's first
/// dimension.
struct Normalization {
  std::vector<double> mean{0.0};
  std::vector<double> stddev{1.0};
};

struct TensorField {
  std::string name;
  at::Tensor tensor;                             // [samples, shape...], on the CPU
  std::optional<Normalization> normalization{};  // for uint8 tensors; the field's dtype is float
};

struct TensorDatasetOptions {
  std::string name = "tensors in memory";
  std::optional<std::uint64_t> id{};  // default: a digest of all bytes, which are read once
};

class TensorDataset final : public Dataset {
 public:
  /// Keeps references to the tensors, or contiguous copies of tensors that are not contiguous. Do
  /// not modify them afterwards. Throws UsageError for tensors with different numbers of samples,
  /// tensors that are not on the CPU, and an invalid Normalization.
  explicit TensorDataset(const std::vector<TensorField>& fields, TensorDatasetOptions options = {});

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override;
  [[nodiscard]] std::uint64_t id() const override { return id_; }
  [[nodiscard]] std::string name() const override { return name_; }

 private:
  struct Source {
    at::Tensor tensor;  // keeps `bytes` alive
    std::span<const std::byte> bytes;
    std::vector<float> scale;  // empty: copied unchanged
    std::vector<float> shift;
  };

  static Source source_of(const TensorField& field);

  SampleLayout layout_;
  std::vector<Source> sources_;
  std::int64_t size_;
  std::uint64_t id_ = 0;
  std::string name_;
};

}  // namespace lockstep
