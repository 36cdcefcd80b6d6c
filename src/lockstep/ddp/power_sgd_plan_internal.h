// Which parameters of a bucket PowerSGD compresses, and where their values are in its memories: a
// pure function of the bucket's parameters and of the options.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/ddp/gradient_bucket.h"
#include "lockstep/ddp/power_sgd.h"

namespace lockstep {

/// Matrices of equal shape. The memory of the matrices is [number of matrices, rows, columns], that
/// of P and Q [number of matrices, rank, rows or columns].
struct MatrixBatch {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t rank = 0;
  std::vector<BucketParameter> matrices = {};
  // Where the batch begins in the memory of matrices, of all P and of all Q.
  std::int64_t values_begin = 0;
  std::int64_t left_begin = 0;
  std::int64_t right_begin = 0;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(matrices.size()); }
};

struct PowerSgdPlan {
  std::vector<BucketParameter> parameters;  // of the bucket
  std::vector<MatrixBatch> batches;
  std::vector<BucketParameter> plain;  // parameters that are not compressed
  // Elements in all batches.
  std::int64_t num_values = 0;
  std::int64_t num_left = 0;
  std::int64_t num_right = 0;
  std::int64_t num_plain = 0;
};

/// Whether a matrix is compressed: (rows + columns) · rank · min_ratio < rows · columns.
[[nodiscard]] bool is_compressed(std::int64_t rows, std::int64_t columns, std::int64_t rank,
                                 double min_ratio) noexcept;

[[nodiscard]] PowerSgdPlan plan_power_sgd(std::span<const BucketParameter> parameters,
                                          const PowerSgdOptions& options);

}  // namespace lockstep
