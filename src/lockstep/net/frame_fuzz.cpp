// Fuzz target: arbitrary bytes as a stream of frames, in chunks of any size. The Opener returns
// exactly the messages that a Sealer sealed, in the same order, from the first on. Anything else,
// including an exception other than SystemError, is a crash.
//
// Input: one byte of options (bit 0: mode; other bits: chunk size). Then, in mode 0, the bytes of
// the stream; in mode 1, triples (verb, position, value) that change a stream of valid frames.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/net/seal.h"

namespace {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

constexpr std::size_t kLimit = 4096;
constexpr std::size_t kNumFrames = 6;

const lockstep::Secret& key() {
  static const auto fixed =
      lockstep::Secret::from_bytes(std::array<std::byte, lockstep::Secret::kBytes>{});
  return fixed;
}

Bytes message_of(std::size_t frame) {
  Bytes message;
  message.assign(frame * 7, static_cast<std::byte>(frame));
  return message;
}

// Opens `stream` in chunks, and compares the frame of every message with one sealed again.
void check(View stream, std::size_t cut) {
  lockstep::Opener opener(key(), kLimit);
  lockstep::Sealer sealer(key(), kLimit);
  std::size_t opened_bytes = 0;
  try {
    for (std::size_t at = 0; at < stream.size(); at += cut) {
      opener.feed(stream.subspan(at, std::min(cut, stream.size() - at)));
      while (const auto message = opener.try_next()) {
        const auto frame = sealer.seal(*message);
        LOCKSTEP_ASSERT(stream.size() - opened_bytes >= frame.size(), "no frame is incomplete");
        LOCKSTEP_ASSERT(std::ranges::equal(stream.subspan(opened_bytes, frame.size()), frame),
                        "a message was opened from bytes that are not its frame");
        opened_bytes += frame.size();
      }
      LOCKSTEP_ASSERT(opener.wanted() > 0, "without a message, more bytes are wanted");
      LOCKSTEP_ASSERT(opener.wanted() <= kLimit + lockstep::kFrameOverheadBytes,
                      "no more is wanted than the longest frame");
    }
  } catch (const lockstep::SystemError& error) {
    LOCKSTEP_ASSERT(error.error_number() == EBADMSG || error.error_number() == EMSGSIZE,
                    "frames are refused for their content or their length");
  }
}

// Flips bits of a frame, drops it, repeats it, swaps it with another, or truncates it.
void change(std::vector<Bytes>& frames, unsigned verb, std::size_t place, std::byte value) {
  if (frames.empty() || frames.size() > 64) return;
  auto& frame = frames[place % frames.size()];
  const auto where = std::to_integer<std::size_t>(value);
  switch (verb % 5) {
    case 0:
      if (!frame.empty()) frame[(place / frames.size()) % frame.size()] ^= value;
      break;
    case 1:
      frames.erase(frames.begin() + static_cast<std::ptrdiff_t>(place % frames.size()));
      break;
    case 2:
      frames.push_back(frame);
      break;
    case 3:
      std::swap(frame, frames[where % frames.size()]);
      break;
    default:
      frame.resize(std::min(frame.size(), where));
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t cut = (data[0] >> 1u) + 1u;
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  if ((data[0] & 1u) == 0) {
    check(rest, cut);
    return 0;
  }
  lockstep::Sealer sealer(key(), kLimit);
  std::vector<Bytes> frames;
  for (std::size_t i = 0; i < kNumFrames; ++i) frames.push_back(sealer.seal(message_of(i)));
  for (std::size_t i = 0; i + 2 < rest.size(); i += 3) {
    change(frames, std::to_integer<unsigned>(rest[i]), std::to_integer<std::size_t>(rest[i + 1]),
           rest[i + 2]);
  }
  Bytes stream;
  for (const auto& frame : frames) stream.insert(stream.end(), frame.begin(), frame.end());
  check(stream, cut);
  return 0;
}
