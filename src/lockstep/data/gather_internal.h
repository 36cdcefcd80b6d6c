// Gathers rows of a block by index: the inner loops of data sets in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Copies row indices[i] of `source` to row i of `target`; rows are `row_bytes` long.
void gather_rows(std::span<const std::byte> source, std::size_t row_bytes,
                 std::span<const std::int64_t> indices, std::span<std::byte> target) noexcept;

/// The same for bytes that are converted to value × scale + shift. A row consists of scale.size()
/// contiguous channels, each with its own scale and shift.
void gather_scaled(std::span<const std::uint8_t> source, std::size_t row_values,
                   std::span<const std::int64_t> indices, std::span<const float> scale,
                   std::span<const float> shift, std::span<float> target) noexcept;

/// Row i of `input` gets the `window` tokens from starts[i], row i of `target` those from
/// starts[i] + 1.
void gather_windows(std::span<const std::uint16_t> tokens, std::size_t window,
                    std::span<const std::int64_t> starts, std::span<std::int64_t> input,
                    std::span<std::int64_t> target) noexcept;
void gather_windows(std::span<const std::uint32_t> tokens, std::size_t window,
                    std::span<const std::int64_t> starts, std::span<std::int64_t> input,
                    std::span<std::int64_t> target) noexcept;

}  // namespace lockstep
