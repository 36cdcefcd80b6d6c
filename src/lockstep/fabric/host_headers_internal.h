// The headers of the calls that the ranks of one host have entered, in memory that they share. A
// header is an encoded message of kind `entered`, with the whole input if that travels with the
// call. The rank that enters a call last finds the headers of all, and posts them for its host.
//
// A rank writes only to its own part. It enters call n + kMaxCallsInFlight only when all ranks have
// completed call n: a header stays until every rank has used it. Of two ranks that enter at the
// same time, at least one sees that all have entered, because the numbers are sequentially
// consistent; if both do, both post.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lockstep/fabric/data_plane.h"

namespace lockstep {

/// Thread-safe.
class HostHeaders {
 public:
  using Clock = std::chrono::steady_clock;

  /// The shared memory per rank, if inputs of up to `inline_bytes` travel with their calls.
  [[nodiscard]] static std::size_t bytes_per_rank(std::size_t inline_bytes) noexcept;
  /// `memory` is zeroed. The ranks of the host are numbered from 0 to `size` - 1.
  HostHeaders(std::shared_ptr<RegisteredMemory> memory, std::size_t own_index, std::size_t size);

  /// States that this rank has entered call `number`. `header` is empty if this rank posts its own
  /// itself. Returns whether all ranks of the host have entered the call.
  [[nodiscard]] bool enter(std::uint64_t number, std::span<const std::byte> header);
  /// The header of a rank that has entered call `number`; empty if that rank posts its own itself.
  [[nodiscard]] std::span<const std::byte> header_of(std::size_t index,
                                                     std::uint64_t number) const noexcept;
  /// This rank has posted its header of call `number`, among those of its host.
  void set_posted(std::uint64_t number);

  /// What all ranks of the group have entered and completed, as far as this rank knows. A rank that
  /// has completed a call has received its headers.
  struct Progress {
    std::uint64_t entered = 0;
    std::uint64_t completed = 0;
  };
  /// Takes this rank's headers of calls above `completed` that it has not posted, and notes them as
  /// posted: the caller posts these copies.
  [[nodiscard]] std::vector<std::vector<std::byte>> take_unposted(std::uint64_t completed);
  /// The same if one of a call above all.entered has been waiting for `patience`, as far as this
  /// function has seen; otherwise none.
  [[nodiscard]] std::vector<std::vector<std::byte>> take_late(const Progress& all,
                                                              Clock::time_point now,
                                                              Clock::duration patience);

 private:
  [[nodiscard]] std::byte* slot(std::size_t index, std::uint64_t number) const noexcept;
  [[nodiscard]] std::size_t room() const noexcept;  // of a slot
  [[nodiscard]] std::vector<std::vector<std::byte>> take_unposted_locked(std::uint64_t completed);

  const std::shared_ptr<RegisteredMemory> memory_;
  const std::size_t own_index_;
  const std::size_t size_;
  std::mutex mutex_;
  // Below: mutex_; calls of this rank.
  std::uint64_t entered_ = 0;
  std::uint64_t posted_ = 0;  // all headers up to this one, by this rank
  struct Late {
    std::uint64_t first = 0;  // the first header that has not been posted
    Clock::time_point since = {};
  };
  Late late_ = {};
};

}  // namespace lockstep
