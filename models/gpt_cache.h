// The key-value cache of a Gpt: with the keys and values of each block for all earlier positions,
// the next token costs a forward pass of length one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::models {

/// The keys and values of one block, in memory for `capacity` positions.
class KeyValues {
 public:
  explicit KeyValues(std::int64_t capacity) : capacity_(capacity) {}

  /// Appends the keys and values of the next positions, each of shape (batch, heads, positions,
  /// head size), and returns all keys and all values so far. The capacity must suffice.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& keys, const at::Tensor& values);

  /// The number of positions.
  [[nodiscard]] std::int64_t length() const noexcept { return length_; }

  void clear() noexcept { length_ = 0; }

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  at::Tensor keys_, values_;  // (batch, heads, capacity, head size), allocated by the first append
};

class GptCache {
 public:
  /// For a Gpt with `layers` blocks and this context.
  GptCache(std::int64_t layers, std::int64_t context);

  /// The number of positions.
  [[nodiscard]] std::int64_t length() const noexcept { return blocks_.front().length(); }
  /// Removes all positions and keeps the memory.
  void clear() noexcept;

  [[nodiscard]] KeyValues& block(std::size_t index) { return blocks_[index]; }

 private:
  std::vector<KeyValues> blocks_;
};

}  // namespace lockstep::models
