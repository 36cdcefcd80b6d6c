// Counts the bytes that passes over memory load and store, to compare them with what an algorithm
// needs:
//
//   CountMovedBytes count;
//   optimizer.step();
//   count.bytes().loaded;
//
// A pass is counted on the thread that runs it: use one thread. Digests, norms and copies of
// gradients into buckets are not counted.
#pragma once

#include <cstdint>

namespace lockstep {

struct MovedBytes {
  std::uint64_t loaded = 0;
  std::uint64_t stored = 0;
  std::uint64_t reloaded = 0;  // loaded directly after this thread has stored them
};

/// While it exists, counts what this thread moves. The innermost one counts.
class CountMovedBytes {
 public:
  CountMovedBytes() noexcept;
  CountMovedBytes(const CountMovedBytes&) = delete;
  CountMovedBytes& operator=(const CountMovedBytes&) = delete;
  ~CountMovedBytes();

  [[nodiscard]] const MovedBytes& bytes() const noexcept { return bytes_; }

 private:
  friend void note_moved(const MovedBytes& moved) noexcept;

  MovedBytes bytes_ = {};
  CountMovedBytes* outer_;
};

/// For passes: adds to the count of this thread, if there is one.
void note_moved(const MovedBytes& moved) noexcept;

}  // namespace lockstep
