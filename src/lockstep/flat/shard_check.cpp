#include "lockstep/flat/shard_check.h"

#include <algorithm>
#include <utility>

#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::uint64_t digest_of(const ShardCheck::Memory& memory, const ShardCheck::Change& part) {
  return digest(memory[part.piece].subspan(part.begin, part.end - part.begin));
}

}  // namespace

void ShardCheck::note(const Memory& memory) {
  noted_.clear();
  std::size_t total = 0;
  for (const auto& piece : memory) total += piece.size();
  if (total == 0) return;
  constexpr std::size_t kLine = 64;
  const auto length = std::max(kLeastBytes, (total / kWindows + kLine - 1) / kLine * kLine);
  const auto num_windows = (total + length - 1) / length;
  const auto begin = window_++ % num_windows * length;
  std::size_t at = 0;  // of the piece, in all bytes
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto from = std::clamp(begin, at, at + memory[i].size());
    const auto to = std::clamp(begin + length, at, at + memory[i].size());
    if (from < to) {
      const Change part{.piece = i, .begin = from - at, .end = to - at};
      noted_.push_back({part, digest_of(memory, part)});
    }
    at += memory[i].size();
  }
}

std::optional<ShardCheck::Change> ShardCheck::find_change(const Memory& memory) {
  for (const auto& [where, noted] : std::exchange(noted_, {})) {
    if (digest_of(memory, where) != noted) return where;
  }
  return std::nullopt;
}

}  // namespace lockstep
