// What a Gpt remembers of the tokens that it has read, so that the next one costs a forward of
// length one: each block's keys and values of every place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::models {

/// The keys and values that one block has computed, in memory for `capacity` places.
class KeyValues {
 public:
  explicit KeyValues(std::int64_t capacity) : capacity_(capacity) {}

  /// Adds those of the next places, each of shape (batch, heads, places, head size), and returns
  /// all keys and all values so far. There is room for them.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& keys, const at::Tensor& values);

  /// Places read.
  [[nodiscard]] std::int64_t length() const noexcept { return length_; }

  void clear() noexcept { length_ = 0; }

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  at::Tensor keys_, values_;  // (batch, heads, capacity, head size), made by the first append
};

class GptCache {
 public:
  /// For a Gpt of `layers` blocks and that context.
  GptCache(std::int64_t layers, std::int64_t context);

  /// Places read.
  [[nodiscard]] std::int64_t length() const noexcept { return blocks_.front().length(); }
  /// Forgets all of them; the memory stays.
  void clear() noexcept;

  [[nodiscard]] KeyValues& block(std::size_t index) { return blocks_[index]; }

 private:
  std::vector<KeyValues> blocks_;
};

}  // namespace lockstep::models
