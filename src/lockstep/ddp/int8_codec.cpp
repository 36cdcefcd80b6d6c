#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <span>

#include "lockstep/ddp/int8_codec_internal.h"
#include "lockstep/flat/parallel.h"
#include "lockstep/kernels/int8_blocks.h"

namespace lockstep {
namespace {

constexpr auto kBlock = static_cast<std::int64_t>(kInt8Block);

std::span<float> floats_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

Int8Blocks blocks_of(const at::Tensor& encoded, std::size_t count) {
  return Int8Blocks::in({static_cast<std::byte*>(encoded.mutable_data_ptr()), encoded.nbytes()},
                        count);
}

std::int64_t num_blocks(const at::Tensor& values) {
  return static_cast<std::int64_t>(int8_num_blocks(static_cast<std::size_t>(values.numel())));
}

// Views of encoded memory: the scales, and a row of integers per block.
at::Tensor scales_of(const at::Tensor& encoded, std::int64_t blocks) {
  return encoded.slice(0, 0, blocks * 4).view(at::kFloat);
}
at::Tensor integers_of(const at::Tensor& encoded, std::int64_t blocks) {
  return encoded.slice(0, blocks * 4).view(at::kChar).view({blocks, kBlock});
}

}  // namespace

void int8_encode(const at::Tensor& values, const at::Tensor& error, const at::Tensor& residual,
                 const at::Tensor& encoded) {
  if (!values.is_cpu()) return int8_encode_by_operators(values, error, residual, encoded);
  const std::span<const float> from = floats_of(values);
  const std::span<const float> lost = floats_of(error);
  const auto rest = floats_of(residual);
  const auto to = blocks_of(encoded, from.size());
  in_parts(from.size(), kInt8Block, [&](std::size_t begin, std::size_t end) {
    const auto length = end - begin;
    int8_encode_pass(from.subspan(begin, length), lost.empty() ? lost : lost.subspan(begin, length),
                     rest.subspan(begin, length), to.from(begin));
  });
}

void int8_decode(const at::Tensor& encoded, const at::Tensor& values) {
  if (!values.is_cpu()) return int8_decode_by_operators(encoded, values);
  const auto to = floats_of(values);
  const auto from = blocks_of(encoded, to.size());
  in_parts(to.size(), kInt8Block, [&](std::size_t begin, std::size_t end) {
    int8_decode_pass(from.from(begin), to.subspan(begin, end - begin));
  });
}

void int8_average(const TreePlan& plan, const std::vector<at::Tensor>& encoded, int own,
                  const at::Tensor& exact, double divisor, const at::Tensor& result) {
  if (!result.is_cpu()) {
    std::vector<at::Tensor> stack;
    for (const int instruction : plan.instructions()) {
      if (instruction == TreePlan::kCombine) {
        const auto upper = std::move(stack.back());
        stack.pop_back();
        stack.back() = stack.back() + upper;
      } else if (instruction == own) {
        stack.push_back(exact);
      } else {
        stack.push_back(at::empty_like(exact));
        int8_decode(encoded[static_cast<std::size_t>(instruction)], stack.back());
      }
    }
    result.copy_(stack.back() / divisor);
    return;
  }
  const auto to = floats_of(result);
  in_parts(to.size(), kInt8Block, [&](std::size_t begin, std::size_t end) {
    std::vector<Int8Term> terms;
    for (std::size_t rank = 0; rank < encoded.size(); ++rank) {
      if (static_cast<int>(rank) == own) {
        terms.push_back({.exact = floats_of(exact).data() + begin});
      } else {
        terms.push_back({.encoded = blocks_of(encoded[rank], to.size()).from(begin)});
      }
    }
    int8_sum_pass(plan, terms, static_cast<float>(divisor), to.subspan(begin, end - begin));
  });
}

void int8_encode_by_operators(const at::Tensor& values, const at::Tensor& error,
                              const at::Tensor& residual, const at::Tensor& encoded) {
  const auto blocks = num_blocks(values);
  const auto sums = error.defined() ? values + error : values;
  const auto padded =
      at::constant_pad_nd(sums, {0, blocks * kBlock - values.numel()}).view({blocks, kBlock});
  const auto largest = padded.abs().amax(1);
  const auto is_small = largest < std::ldexp(1.0, -100);
  const auto is_finite = largest.isfinite();
  const auto zeros = at::zeros_like(largest);
  const auto inverse =
      at::where(is_small.logical_or(is_finite.logical_not()), zeros, 127 / largest);
  const auto scale =
      at::where(is_small, zeros, largest / 127)
          .masked_fill(is_finite.logical_not(), std::numeric_limits<double>::quiet_NaN());
  const auto integers = (padded * inverse.unsqueeze(1))
                            .round()
                            .masked_fill(is_finite.logical_not().unsqueeze(1), 0.0);
  residual.copy_((padded - integers * scale.unsqueeze(1)).flatten().slice(0, 0, values.numel()));
  scales_of(encoded, blocks).copy_(scale);
  integers_of(encoded, blocks).copy_(integers);
}

void int8_decode_by_operators(const at::Tensor& encoded, const at::Tensor& values) {
  const auto blocks = num_blocks(values);
  const auto decoded =
      integers_of(encoded, blocks).to(at::kFloat) * scales_of(encoded, blocks).unsqueeze(1);
  values.copy_(decoded.flatten().slice(0, 0, values.numel()));
}

}  // namespace lockstep
