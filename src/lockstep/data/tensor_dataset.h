// Samples that lie in memory as tensors: row i of every tensor is sample i. What file readers with
// samples of one size end in, too: a mapped file is a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// Bytes become floats (value / 255 − mean) / stddev while they are gathered, so that images
/// stay bytes in memory. One number for all channels or one for each; channels are a sample's first
/// dimension.
struct Normalization {
  std::vector<double> mean{0.0};
  std::vector<double> stddev{1.0};
};

struct TensorField {
  std::string name;
  at::Tensor tensor;                     // [samples, shape...], on the CPU
  std::optional<Normalization> normalization{};  // for uint8 tensors; the field then holds floats
};

struct TensorDatasetOptions {
  std::string name = "tensors in memory";
  std::optional<std::uint64_t> id{};  // none: a digest of all bytes, which reads them once
};

class TensorDataset final : public Dataset {
 public:
  /// Holds on to the tensors (made contiguous where they are not); leave their contents alone.
  /// Throws UsageError for tensors of different lengths, not on the CPU, or a wrong Normalization.
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
    std::vector<float> scale;  // empty: copied as it is
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
