#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <span>

#include "lockstep/base/random.h"
#include "lockstep/ddp/low_rank_internal.h"
#include "lockstep/kernels/low_rank_pass.h"

namespace lockstep {
namespace {

// Of the length of a row before the rows above it were subtracted. What is left below this is
// rounding.
constexpr double kVanished = 1e-6;

// Eight sums, so that compilers vectorize; always eight, so that the order is the same everywhere.
template <typename T>
double dot(std::span<const T> left, std::span<const T> right) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  const auto whole = left.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(left[i + lane]) * static_cast<double>(right[i + lane]);
    }
  }
  for (auto i = whole; i < left.size(); ++i) {
    sums[i - whole] += static_cast<double>(left[i]) * static_cast<double>(right[i]);
  }
  double sum = 0;
  for (const auto lane : sums) sum += lane;
  return sum;
}

template <typename T>
void orthonormalize_matrix(std::span<T> matrix, std::size_t rows, const T* fallback) {
  const auto length = matrix.size() / rows;
  const auto row = [&](std::size_t i) { return matrix.subspan(i * length, length); };
  const auto dot_of = [&](std::size_t i, std::size_t j) { return dot<T>(row(i), row(j)); };
  std::vector<double> before(rows);
  for (std::size_t i = 0; i < rows; ++i) before[i] = std::sqrt(dot_of(i, i));
  for (std::size_t i = 0; i < rows; ++i) {
    auto norm = std::sqrt(dot_of(i, i));
    if (norm <= kVanished * before[i]) {  // false for NaN
      for (std::size_t k = 0; k < length; ++k) {
        row(i)[k] = fallback == nullptr ? T{0} : fallback[i * length + k];
      }
      norm = std::sqrt(dot_of(i, i));
      if (norm == 0) continue;
    }
    for (auto& value : row(i)) value = static_cast<T>(static_cast<double>(value) / norm);
    for (auto j = i + 1; j < rows; ++j) {
      const auto along = dot_of(i, j);
      const auto from = row(i);
      const auto to = row(j);
      for (std::size_t k = 0; k < length; ++k) {
        to[k] = static_cast<T>(static_cast<double>(to[k]) - along * static_cast<double>(from[k]));
      }
    }
  }
}

template <typename T>
std::span<T> elements_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<T>(), static_cast<std::size_t>(tensor.numel())};
}

template <typename T>
void orthonormalize_each(const at::Tensor& batch, const at::Tensor& fallback) {
  const auto all = elements_of<T>(batch);
  const auto rows = static_cast<std::size_t>(batch.size(1));
  const auto size = rows * static_cast<std::size_t>(batch.size(2));
  const T* const instead = fallback.defined() ? fallback.const_data_ptr<T>() : nullptr;
  for (std::size_t begin = 0; begin < all.size(); begin += size) {
    orthonormalize_matrix<T>(all.subspan(begin, size), rows,
                             instead == nullptr ? nullptr : instead + begin);
  }
}

template <typename T>
void multiply(const at::Tensor& left, const at::Tensor& right, double weight,
              const at::Tensor& result, const at::Tensor& residual) {
  low_rank_pass<T>(elements_of<T>(left), elements_of<T>(right),
                   static_cast<std::size_t>(left.size(0)), static_cast<T>(weight),
                   elements_of<T>(result), elements_of<T>(residual));
}

}  // namespace

void orthonormalize(const at::Tensor& batch, const at::Tensor& fallback) {
  if (!batch.is_cpu()) return orthonormalize_by_operators(batch, fallback);
  batch.scalar_type() == at::kDouble ? orthonormalize_each<double>(batch, fallback)
                                     : orthonormalize_each<float>(batch, fallback);
}

void orthonormalize_by_operators(const at::Tensor& batch, const at::Tensor& fallback) {
  const auto norm_of = [](const at::Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
  };
  const auto before = norm_of(batch);
  const auto num_rows = batch.size(1);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const auto row = batch.slice(1, i, i + 1);
    const auto vanished = norm_of(row) <= kVanished * before.slice(1, i, i + 1);
    const auto instead = fallback.defined() ? fallback.slice(1, i, i + 1) : at::zeros_like(row);
    row.copy_(at::where(vanished, instead, row));
    const auto norm = norm_of(row);
    row.div_(norm.masked_fill(norm == 0, 1.0));
    if (i + 1 == num_rows) break;
    const auto others = batch.slice(1, i + 1);
    others.sub_((others * row).sum(-1, /*keepdim=*/true) * row);
  }
}

void multiply_low_rank(const at::Tensor& left, const at::Tensor& right, double weight,
                       const at::Tensor& result, const at::Tensor& residual) {
  if (left.is_cpu() && result.scalar_type() == left.scalar_type()) {
    left.scalar_type() == at::kDouble ? multiply<double>(left, right, weight, result, residual)
                                      : multiply<float>(left, right, weight, result, residual);
    return;
  }
  auto product = at::empty_like(residual);
  if (left.is_cpu()) {
    multiply_low_rank(left, right, weight, product, residual);
  } else {
    product.copy_(left.t().matmul(right).flatten());
    residual.sub_(product, weight);
  }
  result.copy_(product);
}

at::Tensor random_rows(std::int64_t rows, std::int64_t length, std::uint64_t seed,
                       std::string_view name, std::int64_t step) {
  RandomStream stream({seed, random_purpose(name)}, static_cast<std::uint64_t>(step), 0);
  auto values = at::empty({rows, length}, at::kFloat);
  // The sum of four uniform numbers: exact arithmetic, unlike logarithm and cosine.
  for (auto& value : elements_of<float>(values)) {
    value = static_cast<float>(stream.uniform() + stream.uniform() + stream.uniform() +
                               stream.uniform() - 2);
  }
  return values;
}

}  // namespace lockstep
