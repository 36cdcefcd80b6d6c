// Inflates gzip and raw deflate data into memory of known size, so that a small file cannot cause a
// large allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// False if `bytes` cannot come from so few compressed bytes: deflate expands by a factor of at
/// most 1032 (a match of 258 bytes in 2 bits). Such claims are refused before memory is allocated.
[[nodiscard]] bool deflate_can_give(std::uint64_t compressed_bytes, std::uint64_t bytes) noexcept;

[[nodiscard]] bool is_gzip(std::span<const std::byte> bytes) noexcept;

enum class DeflateWrapper { gzip, none };

/// Reads one deflate stream sequentially.
class Inflater {
 public:
  Inflater(const FileBytes& file, DeflateWrapper wrapper);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Fills `out`; `what` names it in messages. Throws UsageError if the stream is too short or
  /// damaged.
  void read(std::span<std::byte> out, std::string_view what);

  /// Throws UsageError unless the stream, its checksum and the file end here.
  void expect_end();

 private:
  // Inflates into `out`; returns the number of bytes, fewer at the end of the stream.
  std::size_t pull(std::span<std::byte> out);

  struct State;
  const FileBytes& file_;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
