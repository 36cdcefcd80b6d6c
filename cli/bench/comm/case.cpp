#include "cli/bench/comm/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lockstep::cli {
namespace {

constexpr std::array kTimed{Collective::all_reduce,       Collective::reduce_scatter,
                            Collective::all_gather,       Collective::broadcast,
                            Collective::reduce,           Collective::gather,
                            Collective::scatter,          Collective::all_to_all,
                            Collective::reduce_to_owners, Collective::gather_from_owners};

// True where S consists of one part per rank: a span of its own, or a shard in place.
bool has_parts(Collective op) {
  return op != Collective::all_reduce && op != Collective::broadcast && op != Collective::reduce;
}
bool has_spans(Collective op) { return has_parts(op) && !has_owners(op); }

std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

std::string_view to_string(MemoryKind memory) noexcept {
  return memory == MemoryKind::registered ? "registered" : "ordinary";
}

std::span<const Collective> timed_collectives() noexcept { return kTimed; }

CommCase whole_case(CommCase requested, int ranks) {
  const auto unit =
      bytes_of(requested.dtype) * (has_parts(requested.op) ? static_cast<std::size_t>(ranks) : 1U);
  requested.bytes = std::max(requested.bytes / unit, std::size_t{1}) * unit;
  return requested;
}

Call call_of(const CommCase& timed, int ranks) {
  const auto elements = static_cast<std::int64_t>(timed.bytes / bytes_of(timed.dtype));
  return {.kind = timed.op,
          .dtype = timed.dtype,
          .count = has_spans(timed.op) ? elements / ranks : elements,
          .name = "bench"};
}

std::optional<Owners> owners_of(const CommCase& timed, int ranks) {
  if (!has_owners(timed.op)) return std::nullopt;
  const auto elements = static_cast<std::int64_t>(timed.bytes / bytes_of(timed.dtype));
  std::vector<OwnedPiece> shards;
  for (int rank = 0; rank < ranks; ++rank) shards.push_back({rank, elements / ranks});
  return Owners(ranks, shards);
}

double bus_factor(Collective op, int ranks) {
  const double others = (ranks - 1.0) / ranks;
  if (op == Collective::all_reduce) return 2 * others;
  return has_parts(op) ? others : 1.0;
}

double least_traffic(const CommCase& timed, int ranks) {
  const auto size = static_cast<double>(timed.bytes);
  if (timed.op == Collective::reduce_to_owners) return ranks * size + size;
  if (timed.op == Collective::gather_from_owners) return size + (ranks - 1) * size;
  const auto call = call_of(timed, ranks);
  double bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes += static_cast<double>(input_bytes(call, rank, ranks) + output_bytes(call, rank, ranks));
  }
  return bytes;
}

BufferLayout buffer_layout(const CommCase& timed, int rank, int ranks) {
  const auto call = call_of(timed, ranks);
  BufferLayout layout{.input_bytes = input_bytes(call, rank, ranks),
                      .output_bytes = output_bytes(call, rank, ranks)};
  std::size_t largest_input = 0;
  std::size_t largest_output = 0;
  for (int other = 0; other < ranks; ++other) {
    largest_input = std::max(largest_input, input_bytes(call, other, ranks));
    largest_output = std::max(largest_output, output_bytes(call, other, ranks));
  }
  if (has_spans(timed.op)) layout.output_offset = round_up(largest_input, kBufferAlignment);
  layout.buffer_bytes =
      round_up(std::max(layout.output_offset + largest_output, largest_input), kBufferAlignment);
  return layout;
}

std::string size_in_words(std::size_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < units.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, units[unit]);
}

}  // namespace lockstep::cli
