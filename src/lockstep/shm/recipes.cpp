#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/kernels/copy_pass.h"
#include "lockstep/kernels/moved_bytes.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/shm/recipes_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;  // chunks begin at cache lines

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes,
                Caching caching = Caching::through) {
  if (bytes == 0 || to == from) return;
  note_moved({.loaded = bytes, .stored = bytes});
  copy_pass({to, bytes}, from, caching);
}

// Copies bytes into the output of a call.
void copy_out(const ShmCall& call, std::size_t offset, const std::byte* from, std::size_t bytes) {
  copy_bytes(call.call.output.data() + offset, from, bytes, caching_for(call.call.output.size()));
}

// The part of a span that one rank reduces.
struct Chunk {
  std::size_t begin = 0;  // bytes
  std::size_t bytes = 0;
};

Chunk chunk_of(std::size_t total, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  const auto length = ((total + ranks - 1) / ranks + kLine - 1) / kLine * kLine;
  const auto begin = std::min(total, static_cast<std::size_t>(rank) * length);
  return {begin, std::min(length, total - begin)};
}

void reduce_into(const ShmCall& call, std::span<const std::byte* const> sources,
                 std::span<std::byte* const> destinations, std::size_t bytes) {
  if (bytes == 0 || destinations.empty()) return;
  reduce({call.call.dtype, call.call.op, call.weight}, call.tree(), sources, destinations,
         bytes / bytes_of(call.call.dtype));
}

// One pointer per rank, without a heap allocation for groups of up to 32 ranks.
template <typename Pointer>
class PointerList {
 public:
  void push_back(Pointer pointer) {
    if (size_ < few_.size()) {
      few_[size_++] = pointer;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(pointer);
  }
  [[nodiscard]] std::span<const Pointer> span() const {
    return many_.empty() ? std::span<const Pointer>(few_.data(), size_) : std::span(many_);
  }

 private:
  std::array<Pointer, 32> few_;
  std::size_t size_ = 0;
  std::vector<Pointer> many_;  // all pointers, if there are more than fit into few_
};

// The data of one round: bytes [begin, begin + bytes) of every piece. In source q the window of
// piece p is at starts[q] + p × stride; in this rank's own input, at starts[q] + p × own_stride.
struct Window {
  std::size_t begin = 0;
  std::size_t bytes = 0;
  int rank = 0;
  std::size_t stride = 0;
  std::size_t own_stride = 0;
  PointerList<const std::byte*> starts = {};

  [[nodiscard]] const std::byte* piece(int source, int piece) const {
    return starts.span()[static_cast<std::size_t>(source)] +
           static_cast<std::size_t>(piece) * (source == rank ? own_stride : stride);
  }
};

// Whether the input of a kind has one piece per rank, or one piece for all.
bool has_piece_for_each(Collective kind) {
  return kind == Collective::reduce_scatter || kind == Collective::scatter ||
         kind == Collective::all_to_all;
}

// Calls move(offset, bytes) for the elements of `owner` in a window; `offset` is from the window's
// begin.
template <typename Move>
void for_owned(const Call& call, int owner, const Window& window, const Move& move) {
  const auto element = bytes_of(call.dtype);
  for (const auto& range : call.owners->of(owner)) {
    const auto begin = std::max(static_cast<std::size_t>(range.begin) * element, window.begin);
    const auto end = std::min(static_cast<std::size_t>(range.begin + range.count) * element,
                              window.begin + window.bytes);
    if (begin < end) move(begin - window.begin, end - begin);
  }
}

void reduce_owned(const ShmCall& call, const Window& window) {
  for_owned(call.call, call.rank(), window, [&](std::size_t offset, std::size_t bytes) {
    PointerList<const std::byte*> sources;
    for (int source = 0; source < call.size(); ++source) {
      sources.push_back(window.piece(source, 0) + offset);
    }
    auto* const destination = call.call.output.data() + window.begin + offset;
    reduce_into(call, sources.span(), std::span(&destination, 1), bytes);
  });
}

void copy_owned_by_others(const ShmCall& call, const Window& window) {
  for (int source = 0; source < call.size(); ++source) {
    if (source == call.rank()) continue;
    for_owned(call.call, source, window, [&](std::size_t offset, std::size_t bytes) {
      copy_out(call, window.begin + offset, window.piece(source, 0) + offset, bytes);
    });
  }
}

// Reads this rank's part of a window and writes it, reduced or copied, to its output.
void read_window(const ShmCall& call, const Window& window) {
  const auto piece_bytes = static_cast<std::size_t>(call.call.count) * bytes_of(call.call.dtype);
  auto* output = call.call.output.data();
  const int rank = call.rank();
  const int size = call.size();
  const int piece = has_piece_for_each(call.call.kind) ? rank : 0;
  switch (call.call.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::reduce: {
      if (call.call.output.empty()) return;
      PointerList<const std::byte*> sources;
      for (int source = 0; source < size; ++source) sources.push_back(window.piece(source, piece));
      auto* const destination = output + window.begin;
      reduce_into(call, sources.span(), std::span(&destination, 1), window.bytes);
      return;
    }
    case Collective::broadcast:
    case Collective::scatter:
      if (!call.call.output.empty()) {
        copy_out(call, window.begin, window.piece(call.call.root, piece), window.bytes);
      }
      return;
    case Collective::all_gather:
    case Collective::gather:
    case Collective::split:
    case Collective::all_to_all:
      if (call.call.output.empty()) return;
      for (int source = 0; source < size; ++source) {
        copy_out(call, static_cast<std::size_t>(source) * piece_bytes + window.begin,
                 window.piece(source, piece), window.bytes);
      }
      return;
    case Collective::reduce_to_owners:
      return reduce_owned(call, window);
    case Collective::gather_from_owners:
      return copy_owned_by_others(call, window);
    case Collective::barrier:
    case Collective::allocate:
      return;
  }
}

// The window that covers the whole input of every rank; the caller sets its starts.
Window whole(const ShmCall& call) {
  const auto piece_bytes = static_cast<std::size_t>(call.call.count) * bytes_of(call.call.dtype);
  return {0, piece_bytes, call.rank(), piece_bytes, piece_bytes};
}

Recipe read_direct(ShmCall& call) {
  auto window = whole(call);
  for (const auto* input : call.inputs) window.starts.push_back(input);
  read_window(call, window);
  call.end_phase();
  co_await call.last_phase_complete();
}

Recipe write_direct(ShmCall& call) {
  const auto chunk = chunk_of(static_cast<std::size_t>(call.call.count) * bytes_of(call.call.dtype),
                              call.rank(), call.size());
  auto sources = call.inputs;
  for (auto& source : sources) source += chunk.begin;
  std::vector<std::byte*> destinations;
  for (auto* output : call.outputs) {
    if (output != nullptr) destinations.push_back(output + chunk.begin);
  }
  reduce_into(call, sources, destinations, chunk.bytes);
  call.end_phase();
  co_await call.last_phase_complete();
}

// Each owner writes its elements to the others: it has usually just computed them, and they are in
// its cache.
Recipe write_owned(ShmCall& call) {
  constexpr std::size_t kBlock = 16 << 10;  // all ranks get a block while it is in the first cache
  for_owned(call.call, call.rank(), whole(call), [&](std::size_t offset, std::size_t bytes) {
    for (const auto end = offset + bytes; offset < end; offset += kBlock) {
      for (int i = 1; i < call.size(); ++i) {
        const auto other = static_cast<std::size_t>((call.rank() + i) % call.size());
        const auto length = std::min(kBlock, end - offset);
        note_moved({.stored = length, .reloaded = length});
        std::memcpy(call.outputs[other] + offset, call.call.input.data() + offset, length);
      }
    }
  });
  call.end_phase();
  co_await call.last_phase_complete();
}

// No other rank reads the chunk that this rank reduces, so the result replaces it in the buffer.
Recipe reduce_two_shot(ShmCall& call) {
  const auto total = call.call.input.size();
  const auto own = chunk_of(total, call.rank(), call.size());
  PointerList<const std::byte*> sources;
  for (int rank = 0; rank < call.size(); ++rank) {
    sources.push_back(call.inline_buffer(rank) + own.begin);
  }
  auto* const result = call.inline_buffer(call.rank()) + own.begin;
  reduce_into(call, sources.span(), std::span(&result, 1), own.bytes);
  call.end_phase();
  co_await call.phase_complete();
  if (call.call.output.empty()) co_return;
  for (int rank = 0; rank < call.size(); ++rank) {
    const auto chunk = chunk_of(total, rank, call.size());
    copy_out(call, chunk.begin, call.inline_buffer(rank) + chunk.begin, chunk.bytes);
  }
}

// The rounds of a staged call: window number `round` of inputs of `num_pieces` pieces. Ranks
// without an input stage nothing.
class Rounds {
 public:
  Rounds(const ShmCall& call, int num_pieces, std::size_t piece_bytes)
      : call_(call),
        num_pieces_(num_pieces),
        piece_bytes_(piece_bytes),
        before_(*call.rounds),
        // Whole cache lines, so that every window of every piece is aligned.
        window_bytes_(
            std::max(kLine, kStageBytes / static_cast<std::size_t>(num_pieces) / kLine * kLine)) {
    *call.rounds += count();
  }

  [[nodiscard]] std::uint64_t count() const {
    return (piece_bytes_ + window_bytes_ - 1) / window_bytes_;
  }
  [[nodiscard]] std::size_t begin(std::uint64_t round) const { return round * window_bytes_; }
  // The bytes of a round in a piece of `total` bytes.
  [[nodiscard]] std::size_t bytes(std::uint64_t round, std::size_t total) const {
    return begin(round) >= total ? 0 : std::min(window_bytes_, total - begin(round));
  }
  [[nodiscard]] const std::byte* result(int rank, std::uint64_t round) const {
    return call_.memory->staged_result(rank, before_ + round);
  }
  [[nodiscard]] std::byte* own_result(std::uint64_t round) const {
    return call_.memory->staged_result(call_.rank(), before_ + round);
  }

  void stage(std::uint64_t round) const {
    if (round >= count() || call_.call.input.empty()) return;
    auto* to = call_.memory->staged_input(call_.rank(), before_ + round);
    for (int piece = 0; piece < num_pieces_; ++piece) {
      if (num_pieces_ > 1 && piece == call_.rank()) continue;  // read from the input itself
      const auto start = static_cast<std::size_t>(piece) * piece_bytes_;
      const auto size = call_.call.input.size();
      const auto total = std::min(piece_bytes_, size - std::min(start, size));
      copy_bytes(to + static_cast<std::size_t>(piece) * window_bytes_,
                 call_.call.input.data() + start + begin(round), bytes(round, total));
    }
  }

  // The window of a round: in the staging areas of the others, and in this rank's own input.
  [[nodiscard]] Window window(std::uint64_t round) const {
    Window window{begin(round), bytes(round, piece_bytes_), call_.rank(), window_bytes_,
                  call_.call.input.empty() ? window_bytes_ : piece_bytes_};
    for (int rank = 0; rank < call_.size(); ++rank) {
      const bool own = rank == call_.rank() && !call_.call.input.empty();
      window.starts.push_back(own ? call_.call.input.data() + window.begin
                                  : call_.memory->staged_input(rank, before_ + round));
    }
    return window;
  }

 private:
  const ShmCall& call_;
  int num_pieces_;
  std::size_t piece_bytes_;
  std::uint64_t before_;  // rounds of earlier calls
  std::size_t window_bytes_;
};

Recipe read_staged(ShmCall& call) {
  const Rounds rounds(call, has_piece_for_each(call.call.kind) ? call.size() : 1,
                      static_cast<std::size_t>(call.call.count) * bytes_of(call.call.dtype));
  rounds.stage(0);
  call.end_phase();
  for (std::uint64_t round = 0; round < rounds.count(); ++round) {
    co_await call.phase_complete();
    read_window(call, rounds.window(round));
    rounds.stage(round + 1);
    call.end_phase();
  }
}

// Copies the others' results of a round into the output.
void read_results(const ShmCall& call, const Rounds& rounds, std::uint64_t round) {
  if (call.call.output.empty()) return;
  for (int rank = 0; rank < call.size(); ++rank) {
    if (rank == call.rank()) continue;
    const auto chunk = chunk_of(call.call.output.size(), rank, call.size());
    copy_out(call, chunk.begin + rounds.begin(round), rounds.result(rank, round),
             rounds.bytes(round, chunk.bytes));
  }
}

Recipe reduce_staged(ShmCall& call) {
  const auto total = call.call.input.size();
  const auto chunk = chunk_of(total, call.rank(), call.size());
  const Rounds rounds(call, call.size(), chunk_of(total, 0, call.size()).bytes);
  rounds.stage(0);
  call.end_phase();
  for (std::uint64_t round = 0; round < rounds.count(); ++round) {
    co_await call.phase_complete();
    if (round > 0) read_results(call, rounds, round - 1);
    const auto window = rounds.window(round);
    PointerList<const std::byte*> sources;
    for (int rank = 0; rank < call.size(); ++rank) {
      sources.push_back(window.piece(rank, call.rank()));
    }
    PointerList<std::byte*> destinations;
    destinations.push_back(rounds.own_result(round));
    if (!call.call.output.empty()) {
      destinations.push_back(call.call.output.data() + chunk.begin + window.begin);
    }
    reduce_into(call, sources.span(), destinations.span(), rounds.bytes(round, chunk.bytes));
    rounds.stage(round + 1);
    call.end_phase();
  }
  co_await call.phase_complete();
  if (rounds.count() > 0) read_results(call, rounds, rounds.count() - 1);
}

}  // namespace

void fetch_ahead(const ShmCall& call, int other, bool one_shot) noexcept {
  const auto kind = call.call.kind;
  if (kind != Collective::all_reduce && kind != Collective::all_gather) return;
  const auto total = call.call.input.size();
  const auto part = one_shot ? Chunk{0, total} : chunk_of(total, call.rank(), call.size());
  const auto* const start = call.inline_buffer(other) + part.begin;
  for (std::size_t i = 0; i < std::min(part.bytes, kSmallInlineBytes); i += kLine) {
    __builtin_prefetch(start + i);
  }
}

#ifdef __x86_64__
[[gnu::target("prfchw")]]  // otherwise GCC prefetches the line for reading
#endif
void prepare_next_buffer(const ShmCall& call) noexcept {
  auto* const start = call.memory->inline_buffer(call.rank(), call.number + 1, call.largest_input);
  for (std::size_t i = 0; i < std::min(call.call.input.size(), kSmallInlineBytes); i += kLine) {
    __builtin_prefetch(start + i, /*written=*/1);
  }
}

void run_one_shot(const ShmCall& call) {
  auto window = whole(call);
  for (int rank = 0; rank < call.size(); ++rank) {
    window.starts.push_back(call.inline_buffer(rank));
  }
  read_window(call, window);
}

Recipe recipe_for(ShmCall& call) {
  if (call.is_inline) return reduce_two_shot(call);
  const auto present = [](const auto* start) { return start != nullptr; };
  const bool inputs_registered = std::all_of(call.inputs.begin(), call.inputs.end(), present);
  if (reduces_all(call.call.kind)) {
    const bool writes_direct =
        inputs_registered && (call.call.kind == Collective::reduce
                                  ? present(call.outputs[static_cast<std::size_t>(call.call.root)])
                                  : std::all_of(call.outputs.begin(), call.outputs.end(), present));
    return writes_direct ? write_direct(call) : reduce_staged(call);
  }
  if (call.call.kind == Collective::gather_from_owners &&
      std::all_of(call.outputs.begin(), call.outputs.end(), present)) {
    return write_owned(call);
  }
  const bool rooted =
      call.call.kind == Collective::broadcast || call.call.kind == Collective::scatter;
  const bool shared =
      rooted ? present(call.inputs[static_cast<std::size_t>(call.call.root)]) : inputs_registered;
  return shared ? read_direct(call) : read_staged(call);
}

}  // namespace lockstep
