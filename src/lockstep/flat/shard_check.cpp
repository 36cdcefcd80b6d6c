#include "lockstep/flat/shard_check.h"

#include <ATen/ops/sub.h>

#include <algorithm>
#include <utility>

#include "lockstep/flat/device_stream.h"
#include "lockstep/flat/device_walk.h"
#include "lockstep/flat/moving_window.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

constexpr std::int64_t kLine = 64;

std::int64_t whole_lines(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::int64_t bytes_of(const at::Tensor& piece) { return static_cast<std::int64_t>(piece.nbytes()); }

std::uint64_t digest_of(const at::Tensor& piece, const ShardCheck::Change& part) {
  const auto* const first = static_cast<const std::byte*>(piece.const_data_ptr());
  return digest({first + part.begin, first + part.end});
}

// A captured comparison would be made in every replay, and read in none.
bool is_captured(const ShardCheck::Memory& memory) {
  return std::any_of(memory.begin(), memory.end(), [](const at::Tensor& piece) {
    return piece.is_cuda() && is_capturing(current_stream(piece.device()));
  });
}

}  // namespace

void ShardCheck::note(const Memory& memory) {
  noted_.clear();
  if (is_captured(memory)) return;
  std::int64_t total = 0;
  for (const auto& piece : memory) total += whole_lines(bytes_of(piece));
  if (total == 0) return;
  const auto window = moving_window(total, window_++);
  std::int64_t at = 0;  // of the piece, in all bytes
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const auto& piece = memory[i];
    const auto from = std::clamp(window.begin, at, at + bytes_of(piece));
    const auto to = std::clamp(window.end, at, at + bytes_of(piece));
    if (from < to) {
      const Change part{.piece = i, .begin = from - at, .end = to - at};
      noted_.push_back(piece.is_cuda()
                           ? Noted{part, 0, digest_on_device(piece, part.begin, part.end)}
                           : Noted{part, digest_of(piece, part), {}});
    }
    at += whole_lines(bytes_of(piece));
  }
}

std::optional<ShardCheck::Change> ShardCheck::find_change(const Memory& memory) {
  if (is_captured(memory)) {
    noted_.clear();
    return std::nullopt;
  }
  std::vector<Change> parts;
  std::vector<at::Tensor> differences;
  for (const auto& [where, noted, on_device] : std::exchange(noted_, {})) {
    const auto& piece = memory[where.piece];
    if (!piece.is_cuda()) {
      if (digest_of(piece, where) != noted) return where;
      continue;
    }
    parts.push_back(where);
    differences.push_back(at::sub(on_device, digest_on_device(piece, where.begin, where.end)));
  }
  if (!parts.empty()) late_.push_back({std::move(parts), LateNumbers(differences)});
  return find_late_change();
}

std::optional<ShardCheck::Change> ShardCheck::find_late_change() {
  while (!late_.empty()) {
    const bool have_arrived = late_.front().differences.have_arrived();
    if (!have_arrived && late_.size() <= kLag) break;
    const auto oldest = std::move(late_.front());
    late_.pop_front();
    if (!have_arrived) continue;
    const auto differences = oldest.differences.values();
    const auto other = std::find_if(differences.begin(), differences.end(),
                                    [](std::int64_t difference) { return difference != 0; });
    if (other != differences.end()) {
      return oldest.parts[static_cast<std::size_t>(other - differences.begin())];
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
