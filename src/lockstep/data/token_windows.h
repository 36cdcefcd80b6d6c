// A token stream as samples for a language model: windows of a fixed length. The target of a window
// is the same window shifted by one token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// Tokens in memory or in a mapped file.
struct Tokens {
  std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>> values;
  std::shared_ptr<const void> owner{};  // keeps `values` alive
  std::uint64_t id = 0;                 // identifies the tokens in a checkpoint
  std::string name = "tokens in memory";

  [[nodiscard]] std::int64_t count() const noexcept;
};

/// Tokens that own their memory. The id is a digest of all of them.
[[nodiscard]] Tokens tokens_in_memory(std::vector<std::uint16_t> values);

struct TokenWindowsOptions {
  std::int64_t window = 1024;  // tokens per sample (sequence length)
  std::int64_t stride = 0;     // tokens from one sample's start to the next; 0: equal to window
};

/// Fields "input" and "target", both int64 [window]. The end of the stream that is too short for a
/// window is not read.
class TokenWindows final : public Dataset {
 public:
  /// Throws UsageError if the window is below 1, the stride is negative, or there are fewer than
  /// window + 1 tokens.
  TokenWindows(Tokens tokens, TokenWindowsOptions options);

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override;
  /// Depends on tokens, window and stride, because they decide the contents of each sample.
  [[nodiscard]] std::uint64_t id() const override;
  [[nodiscard]] std::string name() const override { return tokens_.name; }

 private:
  Tokens tokens_;
  std::int64_t window_;
  std::int64_t stride_;
  std::int64_t size_;
  SampleLayout layout_;
};

}  // namespace lockstep
