// Inflates gzip and raw deflate data into memory whose size is known before, so that a small file
// cannot ask for a large one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "lockstep/formats/file_bytes.h"

namespace lockstep {

/// Deflate makes at most 1032 bytes of one (a match of 258 in 2 bits): what claims more is refused
/// before memory is asked for.
[[nodiscard]] bool deflate_can_give(std::uint64_t compressed_bytes, std::uint64_t bytes) noexcept;

[[nodiscard]] bool is_gzip(std::span<const std::byte> bytes) noexcept;

enum class DeflateWrapper { gzip, none };

/// Reads one deflate stream front to back.
class Inflater {
 public:
  Inflater(const FileBytes& file, DeflateWrapper wrapper);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// Fills `out`; `what` names it. Throws UsageError when the stream ends before or is damaged.
  void read(std::span<std::byte> out, std::string_view what);

  /// Throws UsageError unless the stream, its checksum and the file end here.
  void expect_end();

 private:
  // The bytes that zlib gave for `out`, fewer at the stream's end.
  std::size_t pull(std::span<std::byte> out);

  struct State;
  const FileBytes& file_;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
