// A stream of tokens as samples for a language model: windows of a fixed length, each with the same
// window one token further as its target.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep {

/// Tokens that lie in memory or in a mapped file.
struct Tokens {
  std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>> values;
  std::shared_ptr<const void>
      owner{};           // keeps `values` alive; shared by everything cut from one file
  std::uint64_t id = 0;  // stands for the tokens in a checkpoint
  std::string name = "tokens in memory";

  [[nodiscard]] std::int64_t count() const noexcept;
};

/// Tokens in memory of their own; the id is a digest of all of them.
[[nodiscard]] Tokens tokens_in_memory(std::vector<std::uint16_t> values);

struct TokenWindowsOptions {
  std::int64_t window = 1024;  // tokens in a sample
  std::int64_t stride =
      0;  // from one sample's first token to the next's; 0: the window, no overlap
};

/// Fields "input" and "target", both int64 [window]. What is too short for a window at the end of
/// the stream is not read.
class TokenWindows final : public Dataset {
 public:
  /// Throws UsageError when a window or stride is below 1 or the tokens do not fill one window.
  TokenWindows(Tokens tokens, TokenWindowsOptions options);

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const SampleLayout& layout() const override { return layout_; }
  void read(std::span<const std::int64_t> indices, const Rows& rows) const override;
  /// Differs with the window and the stride: sample 7 is then another one.
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
