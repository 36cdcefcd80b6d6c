// The words at which the streams of ranks that share a GPU meet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// The words that one rank waits for: word r is written by rank r. In shared memory of the host,
/// where the host only reads it, except to release its own streams.
class WordRow {
 public:
  explicit WordRow(std::byte* start) : start_(start) {}

  static constexpr std::size_t kStride = 64;
  [[nodiscard]] static std::size_t bytes_for(int size) {
    return (static_cast<std::size_t>(size) + 1) * kStride;
  }

  [[nodiscard]] static std::size_t offset_of(int writer) {
    return static_cast<std::size_t>(writer) * kStride;
  }
  [[nodiscard]] std::atomic_ref<std::uint32_t> word(int writer) const noexcept {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(start_ + offset_of(writer)));
  }
  /// Set by the rank itself after a failure, when its streams are empty.
  [[nodiscard]] std::atomic_ref<std::uint32_t> is_empty(int size) const noexcept {
    return word(size);
  }

 private:
  std::byte* start_;
};

}  // namespace lockstep
