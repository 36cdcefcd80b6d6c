#include "lockstep/data/token_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/gather_internal.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::int64_t num_windows(const Tokens& tokens, std::int64_t window, std::int64_t stride) {
  if (window < 1 || stride < 1) {
    throw UsageError(fmt::format(
        "window {} with stride {} is invalid; both must be at least 1 (stride 0 means the window)",
        window, stride));
  }
  // The target ends one token after the input.
  if (tokens.count() < window + 1) {
    throw UsageError(fmt::format(
        "{} has {} tokens, but a window of {} and its target require {}; use a window of at most "
        "{}",
        tokens.name, tokens.count(), window, window + 1, tokens.count() - 1));
  }
  return (tokens.count() - 1 - window) / stride + 1;
}

}  // namespace

std::int64_t Tokens::count() const noexcept {
  return std::visit([](const auto& all) { return static_cast<std::int64_t>(all.size()); }, values);
}

Tokens tokens_in_memory(std::vector<std::uint16_t> values) {
  auto owner = std::make_shared<const std::vector<std::uint16_t>>(std::move(values));
  const std::span<const std::uint16_t> all(*owner);
  return {.values = all, .owner = owner, .id = digest(std::as_bytes(all))};
}

TokenWindows::TokenWindows(Tokens tokens, TokenWindowsOptions options)
    : tokens_(std::move(tokens)),
      window_(options.window),
      stride_(options.stride == 0 ? options.window : options.stride),
      size_(num_windows(tokens_, window_, stride_)),
      layout_{{"input", at::kLong, {window_}}, {"target", at::kLong, {window_}}} {}

void TokenWindows::read(std::span<const std::int64_t> indices, const Rows& rows) const {
  constexpr std::size_t at_once = 64;  // so that the starts need no allocation
  std::array<std::int64_t, at_once> starts{};
  for (std::size_t done = 0; done < indices.size(); done += at_once) {
    const auto some = indices.subspan(done, std::min(at_once, indices.size() - done));
    for (std::size_t i = 0; i < some.size(); ++i) starts[i] = some[i] * stride_;
    const auto part =
        rows.part(static_cast<std::int64_t>(done), static_cast<std::int64_t>(some.size()));
    std::visit(
        [&](const auto& tokens) {
          gather_windows(tokens, static_cast<std::size_t>(window_),
                         std::span<const std::int64_t>(starts).first(some.size()),
                         part.values<std::int64_t>(0), part.values<std::int64_t>(1));
        },
        tokens_.values);
  }
}

std::uint64_t TokenWindows::id() const {
  const std::array<std::uint64_t, 4> parts{tokens_.id, static_cast<std::uint64_t>(tokens_.count()),
                                           static_cast<std::uint64_t>(window_),
                                           static_cast<std::uint64_t>(stride_)};
  return digest(std::as_bytes(std::span(parts)));
}

}  // namespace lockstep
