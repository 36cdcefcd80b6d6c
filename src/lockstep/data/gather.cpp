#include <cstring>

#include "lockstep/data/gather_internal.h"

namespace lockstep {
namespace {

template <typename Token>
void gather(std::span<const Token> tokens, std::size_t window, std::span<const std::int64_t> starts,
            std::span<std::int64_t> input, std::span<std::int64_t> target) noexcept {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const Token* from = tokens.data() + starts[i];
    // Two runs of their own: each one is a plain widening copy that compilers vectorise.
    std::int64_t* __restrict in = input.data() + i * window;
    for (std::size_t k = 0; k < window; ++k) in[k] = from[k];
    std::int64_t* __restrict out = target.data() + i * window;
    for (std::size_t k = 0; k < window; ++k) out[k] = from[k + 1];
  }
}

}  // namespace

void gather_rows(std::span<const std::byte> source, std::size_t row_bytes,
                 std::span<const std::int64_t> indices, std::span<std::byte> target) noexcept {
  std::byte* to = target.data();
  for (const auto index : indices) {
    const std::byte* from = source.data() + static_cast<std::size_t>(index) * row_bytes;
    if (row_bytes == 8) {
      std::memcpy(to, from, 8);  // a label: one load and one store instead of a call
    } else {
      std::memcpy(to, from, row_bytes);
    }
    to += row_bytes;
  }
}

void gather_scaled(std::span<const std::uint8_t> source, std::size_t row_values,
                   std::span<const std::int64_t> indices, std::span<const float> scale,
                   std::span<const float> shift, std::span<float> target) noexcept {
  const auto channel_values = row_values / scale.size();
  float* __restrict to = target.data();
  for (const auto index : indices) {
    const std::uint8_t* from = source.data() + static_cast<std::size_t>(index) * row_values;
    for (std::size_t channel = 0; channel < scale.size(); ++channel) {
      const float times = scale[channel];
      const float plus = shift[channel];
      for (std::size_t k = 0; k < channel_values; ++k) {
        to[k] = static_cast<float>(from[k]) * times + plus;
      }
      from += channel_values;
      to += channel_values;
    }
  }
}

void gather_windows(std::span<const std::uint16_t> tokens, std::size_t window,
                    std::span<const std::int64_t> starts, std::span<std::int64_t> input,
                    std::span<std::int64_t> target) noexcept {
  gather(tokens, window, starts, input, target);
}

void gather_windows(std::span<const std::uint32_t> tokens, std::size_t window,
                    std::span<const std::int64_t> starts, std::span<std::int64_t> input,
                    std::span<std::int64_t> target) noexcept {
  gather(tokens, window, starts, input, target);
}

}  // namespace lockstep
