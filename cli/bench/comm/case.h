// One thing that `lockstep bench comm` times: a collective on elements of one type, of one size, in
// one kind of memory. And what theory says about it. Pure.
//
// Words: the size S of a case is that of its whole array, as nccl-tests counts: what every rank
// has before and after an all-reduce, the sum of all parts where ranks hold a part each.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/fabric/call.h"

namespace lockstep::cli {

enum class MemoryKind { library, ordinary };  // allocated by the engine, or by anybody

struct CommCase {
  Collective op = Collective::all_reduce;
  DType dtype = DType::float32;
  std::size_t bytes = 0;  // S
  MemoryKind memory = MemoryKind::library;

  friend bool operator==(const CommCase&, const CommCase&) = default;
};

[[nodiscard]] std::string_view to_string(MemoryKind memory) noexcept;
/// Those that can be timed, in the order help names them.
[[nodiscard]] std::span<const Collective> timed_collectives() noexcept;

/// `wish` with its size made whole: elements, and equal parts where each rank holds one; at least
/// one element each.
[[nodiscard]] CommCase whole_case(CommCase wish, int ranks);
/// The call that a rank makes, without its memory.
[[nodiscard]] Call call_of(const CommCase& timed, int ranks);

/// nccl-tests' factor from S / time to what the busiest link of a ring would carry.
[[nodiscard]] double bus_factor(Collective op, int ranks);
/// The bytes that any algorithm moves at least, all ranks together: it reads every input once and
/// writes every output once. 2 N S for all_reduce.
[[nodiscard]] double least_traffic(const CommCase& timed, int ranks);

/// Where a rank's input and output lie in one buffer of memory. All ranks' buffers have one layout.
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
