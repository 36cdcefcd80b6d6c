// A case that `lockstep bench comm` times: one collective on one dtype, one size and one kind of
// memory; and the theoretical bounds of that case. Pure functions.
//
// Words: the size S of a case is the size of the whole array, as in nccl-tests: the array that
// every rank holds before and after an all-reduce; the sum of all parts where each rank holds one
// part.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/fabric/call.h"

namespace lockstep::cli {

enum class MemoryKind { registered, ordinary };  // allocated by the group; any other memory

struct CommCase {
  Collective op = Collective::all_reduce;
  DType dtype = DType::float32;
  std::size_t bytes = 0;  // S
  MemoryKind memory = MemoryKind::registered;

  friend bool operator==(const CommCase&, const CommCase&) = default;
};

[[nodiscard]] std::string_view to_string(MemoryKind memory) noexcept;
/// The collectives that can be timed, in the order of the help text.
[[nodiscard]] std::span<const Collective> timed_collectives() noexcept;

/// Returns `requested` with its size rounded down to whole elements, and to equal parts where each
/// rank holds one; at least one element per part.
[[nodiscard]] CommCase whole_case(CommCase requested, int ranks);
/// The call that each rank issues, without its buffers and owners.
[[nodiscard]] Call call_of(const CommCase& timed, int ranks);
/// Even shards, if the collective has owners.
[[nodiscard]] std::optional<Owners> owners_of(const CommCase& timed, int ranks);

/// The factor of nccl-tests that turns S / time into the bandwidth of the busiest link of a ring.
[[nodiscard]] double bus_factor(Collective op, int ranks);
/// The minimum number of bytes that any algorithm moves, over all ranks: every input is read once
/// and every output is written once. 2 N S for all_reduce on N ranks.
[[nodiscard]] double least_traffic(const CommCase& timed, int ranks);

/// The position of a rank's input and output in one buffer. All ranks use the same layout.
struct BufferLayout {
  std::size_t input_bytes = 0;    // of this rank
  std::size_t output_bytes = 0;   // of this rank
  std::size_t output_offset = 0;  // 0: in place
  std::size_t buffer_bytes = 0;   // a multiple of kBufferAlignment
};
constexpr std::size_t kBufferAlignment = 128;  // two cache lines: processors fetch pairs of them
[[nodiscard]] BufferLayout buffer_layout(const CommCase& timed, int rank, int ranks);

/// "1 KiB", "25 MiB", "1000 B".
[[nodiscard]] std::string size_in_words(std::size_t bytes);

}  // namespace lockstep::cli
