// The parts of the built-in compressions, each alone: int8 by operators, thin matrices, the plan of
// PowerSGD, and the memory of state by parameter.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/ddp/int8_codec_internal.h"
#include "lockstep/ddp/low_rank_internal.h"
#include "lockstep/ddp/parameter_memory_internal.h"
#include "lockstep/ddp/power_sgd_plan_internal.h"
#include "lockstep/kernels/int8_blocks.h"

namespace lockstep {
namespace {

// Not a sine of one frequency: parts of it would be linearly dependent.
at::Tensor wave(std::int64_t count, double phase) {
  return (torch::arange(count, torch::kDouble).square() * 0.37 + phase).sin().to(torch::kFloat);
}

at::Tensor encoded_memory(std::int64_t count) {
  return torch::zeros({static_cast<std::int64_t>(int8_bytes(static_cast<std::size_t>(count)))},
                      torch::kByte);
}

// On a GPU the operators encode and decode: they must give the bits of the loops.
TEST(Int8Codec, OperatorsGiveTheBitsOfTheLoops) {
  for (const std::int64_t count : {1, 256, 1000, 5000}) {
    for (const double special :
         {0.0, std::nan(""), std::numeric_limits<double>::infinity(), 1e30}) {
      auto values = wave(count, 1);
      if (special != 0) values[count / 2] = special;
      values.slice(0, 0, count / 3).mul_(1e-38);
      for (const auto& error : {at::Tensor(), wave(count, 2).mul_(1e-3)}) {
        auto bytes = encoded_memory(count);
        auto other = encoded_memory(count);
        auto residual = torch::empty_like(values);
        auto other_residual = torch::empty_like(values);
        int8_encode(values, error, residual, bytes);
        int8_encode_by_operators(values, error, other_residual, other);
        EXPECT_TRUE(torch::equal(residual.nan_to_num(7), other_residual.nan_to_num(7)));
        const auto scales =
            static_cast<std::int64_t>(4 * int8_num_blocks(static_cast<std::size_t>(count)));
        EXPECT_TRUE(torch::equal(bytes.slice(0, 0, scales).view(torch::kFloat).nan_to_num(7),
                                 other.slice(0, 0, scales).view(torch::kFloat).nan_to_num(7)));
        EXPECT_TRUE(torch::equal(bytes.slice(0, scales), other.slice(0, scales)));
        int8_decode(bytes, residual);
        int8_decode_by_operators(bytes, other_residual);
        EXPECT_TRUE(torch::equal(residual.nan_to_num(7), other_residual.nan_to_num(7)));
        EXPECT_EQ(residual.isfinite().all().item<bool>(), special == 0 || special == 1e30);
      }
    }
  }
}

// [2, 3, length]: two matrices with three rows.
at::Tensor thin(std::int64_t length, double phase, at::ScalarType dtype = torch::kFloat) {
  return wave(2 * 3 * length, phase).view({2, 3, length}).to(dtype).contiguous();
}

at::Tensor products(const at::Tensor& batch) { return batch.matmul(batch.transpose(1, 2)); }

TEST(LowRank, RowsBecomeOrthonormalAndSpanTheSameSpace) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    const double rounding = dtype == torch::kDouble ? 1e-12 : 1e-4;
    for (const std::int64_t length : {3, 5, 8, 100, 1003}) {
      const auto before = thin(length, 1, dtype);
      auto batch = before.clone();
      orthonormalize(batch, {});
      EXPECT_TRUE(
          torch::allclose(products(batch), torch::eye(3, dtype).expand({2, 3, 3}), 0, rounding))
          << products(batch);
      // The projection on the rows changes nothing.
      EXPECT_TRUE(
          torch::allclose(before.matmul(batch.transpose(1, 2)).matmul(batch), before, 0, rounding));
      auto other = before.clone();
      orthonormalize_by_operators(other, {});
      EXPECT_TRUE(torch::allclose(other, batch, 0, rounding));
    }
  }
}

TEST(LowRank, RowsThatVanishAreReplacedAndNanStays) {
  for (auto* const function : {&orthonormalize, &orthonormalize_by_operators}) {
    auto zeros = torch::zeros({2, 3, 40});
    function(zeros, {});
    EXPECT_TRUE(zeros.eq(0).all().item<bool>());
    auto batch = thin(40, 2);
    batch[0][1].copy_(batch[0][0] * 2);  // depends on the row above
    batch[1][2].zero_();
    const auto fallback = thin(40, 3);
    auto replaced = batch.clone();
    function(replaced, fallback);
    EXPECT_TRUE(torch::allclose(replaced.norm(2, -1), torch::ones({2, 3}), 0, 1e-5));
    EXPECT_TRUE(torch::allclose(replaced[0][1], fallback[0][1] / fallback[0][1].norm(), 0, 1e-6));
    function(batch, {});
    EXPECT_TRUE(batch[0][1].eq(0).all().item<bool>());
    EXPECT_TRUE(batch[1][2].eq(0).all().item<bool>());
    auto bad = thin(40, 4);
    bad[0][0][7] = std::nan("");
    function(bad, fallback);
    EXPECT_TRUE(bad[0][0].isnan().all().item<bool>());
    EXPECT_FALSE(bad[1].isnan().any().item<bool>());
  }
}

TEST(LowRank, ProductIsSubtractedFromTheResidual) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    const auto computed = dtype == torch::kDouble ? torch::kDouble : torch::kFloat;
    const auto left = wave(2 * 30, 1).view({2, 30}).to(computed);
    const auto right = wave(2 * 50, 2).view({2, 50}).to(computed);
    auto residual = wave(30 * 50, 3).to(computed);
    const auto expected = left.to(torch::kDouble).t().matmul(right.to(torch::kDouble)).flatten();
    const auto rest = residual.to(torch::kDouble) - 3 * expected;
    auto result = torch::empty({30 * 50}, dtype);
    multiply_low_rank(left, right, 3, result, residual);
    EXPECT_TRUE(torch::allclose(result.to(torch::kDouble), expected, 0,
                                dtype == torch::kBFloat16 ? 1e-2 : 1e-6));
    EXPECT_TRUE(torch::allclose(residual.to(torch::kDouble), rest, 0, 1e-5));
  }
}

TEST(LowRank, RandomRowsDependOnSeedNameAndStepOnly) {
  const auto rows = random_rows(4, 10'000, 1, "weight", 0);
  EXPECT_TRUE(torch::equal(rows, random_rows(4, 10'000, 1, "weight", 0)));
  EXPECT_FALSE(torch::equal(rows, random_rows(4, 10'000, 2, "weight", 0)));
  EXPECT_FALSE(torch::equal(rows, random_rows(4, 10'000, 1, "bias", 0)));
  EXPECT_FALSE(torch::equal(rows, random_rows(4, 10'000, 1, "weight", 1)));
  // Four uniform numbers have the variance 4/12; 40,000 draws estimate it within 2 %.
  EXPECT_NEAR(rows.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(rows.var().item<double>(), 1.0 / 3, 0.02 / 3);
}

BucketParameter parameter(int index, std::vector<std::int64_t> sizes, std::int64_t begin) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return {index, "p" + std::to_string(index), std::move(sizes), begin, begin + count};
}

TEST(PowerSgdPlan, CompressesMatricesThatShrinkEnoughAndBatchesEqualShapes) {
  // (64 + 64) · 4 · 2 = 1024 < 4096; a vector, a matrix of 4 columns and a scalar do not shrink.
  const std::vector<BucketParameter> parameters{
      parameter(0, {64, 64}, 0),      parameter(1, {64}, 4096),
      parameter(2, {64, 8, 8}, 4160), parameter(3, {128, 64}, 8256),
      parameter(4, {512, 4}, 16'448), parameter(5, {}, 18'496),
      parameter(6, {64, 64}, 18'512), parameter(7, {0, 64}, 22'608)};
  const auto plan = plan_power_sgd(parameters, {.rank = 4});
  ASSERT_EQ(plan.batches.size(), 2U);
  EXPECT_EQ(plan.batches[0].size(), 3);
  EXPECT_EQ(plan.batches[0].matrices[1].name, "p2");
  EXPECT_EQ(plan.batches[1].rows, 128);
  EXPECT_EQ(plan.batches[1].values_begin, 3 * 4096);
  EXPECT_EQ(plan.num_left, 3 * 4 * 64 + 4 * 128);
  EXPECT_EQ(plan.num_right, 4 * 4 * 64);
  EXPECT_EQ(plan.plain.size(), 4U);
  EXPECT_EQ(plan.num_plain, 64 + 2048 + 1);
}

// Python: (num_rows + num_cols) * matrix_approximation_rank * min_compression_rate < num_rows *
// num_cols.
TEST(PowerSgdPlan, TheBoundItselfIsNotCompressed) {
  EXPECT_FALSE(is_compressed(4, 4, 1, 2));  // 16 < 16
  EXPECT_TRUE(is_compressed(4, 5, 1, 2));   // 18 < 20
  EXPECT_FALSE(is_compressed(64, 64, 16, 2));
  EXPECT_TRUE(is_compressed(64, 64, 15, 2));
}

TEST(ParameterMemory, StateFollowsItsParameterToOtherBuckets) {
  ParameterMemory memory;
  const auto options = at::TensorOptions().dtype(torch::kFloat);
  const auto first = memory.lay_out(0, {{"a", {2, 3}, 0}, {"b", {4}, 16}}, 20, options);
  EXPECT_EQ(first.fresh.size(), 2U);
  first.memory->next.copy_(torch::arange(20));
  EXPECT_TRUE(memory.tensors()[0].second.eq(0).all().item<bool>()) << "not committed";
  first.memory->commit();
  EXPECT_TRUE(torch::equal(memory.tensors()[0].second, torch::arange(6.0F).view({2, 3})));

  const auto second = memory.lay_out(1, {{"c", {2}, 0}, {"b", {4}, 2}}, 6, options);
  ASSERT_EQ(second.fresh.size(), 1U);
  EXPECT_EQ(second.fresh[0].name, "c");
  EXPECT_TRUE(
      torch::equal(second.memory->now, torch::tensor({0.0F, 0.0F, 16.0F, 17.0F, 18.0F, 19.0F})));
  EXPECT_EQ(memory.of(0), first.memory) << "parameter a is still there";
  const auto third = memory.lay_out(2, {{"a", {2, 3}, 0}}, 6, options);
  EXPECT_EQ(memory.of(1), second.memory);
  EXPECT_TRUE(torch::equal(third.memory->now, torch::arange(6.0F)));
}

TEST(ParameterMemory, IsRestoredFromShapesAndTensors) {
  ParameterMemory memory;
  const auto options = at::TensorOptions().dtype(torch::kDouble);
  memory.lay_out(0, {{"a", {2, 3}, 0}}, 6, options).memory->now.copy_(torch::arange(6));
  ParameterMemory other;
  other.load_shapes_json(memory.shapes_json());
  EXPECT_EQ(other.shapes_json(), memory.shapes_json());
  ASSERT_EQ(other.tensors().size(), 1U);
  other.tensors()[0].second.copy_(memory.tensors()[0].second);
  const auto laid_out = other.lay_out(5, {{"a", {2, 3}, 4}}, 10, options);
  EXPECT_TRUE(laid_out.fresh.empty());
  EXPECT_TRUE(torch::equal(laid_out.memory->now.slice(0, 4), torch::arange(6.0)));
  EXPECT_THROW(other.load_shapes_json("[1]"), UsageError);
  EXPECT_THROW(other.load_shapes_json(R"({"a":{"dtype":"int8","sizes":[1]}})"), UsageError);
  try {
    (void)other.lay_out(0, {{"a", {3, 2}, 0}}, 6, options);
    ADD_FAILURE() << "accepted another shape";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("parameter a has the shape [2, 3]"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep
