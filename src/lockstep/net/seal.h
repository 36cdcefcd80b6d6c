// Frames: the messages of one direction of a connection, encrypted and authenticated, so that none
// can be read, changed, dropped, replayed or reordered on the way. This file only consumes and
// produces bytes.
//
// A frame is
//   length (u32, little-endian) of what follows | ciphertext | tag (16)
// by AES-256-GCM under the direction's key, with the length as additional data and the nonce
//   four zero bytes | number of the frame in its direction (u64, little-endian, from 0).
// A key is used for one direction of one connection only, so no nonce repeats. The nonce depends on
// the position of a frame: the tag of a frame at a different position does not match.
//
// A piece is a frame without a length, for bytes whose length both sides know: ciphertext | tag,
// without additional data. Pieces and frames of a direction are numbered together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/net/secret.h"

namespace lockstep {

class AesGcm;

/// The default limit of a message: an 8 MiB value of the store with its key. Both sides must use
/// the same limit.
constexpr std::size_t kMaxFrameBytes = (8u << 20) + (64u << 10);
/// The size of a frame minus that of its message.
constexpr std::size_t kFrameOverheadBytes = 4 + 16;
constexpr std::size_t kPieceTagBytes = 16;

class Sealer {
 public:
  /// `key` is SessionKeys::sending; no other Sealer may use it.
  explicit Sealer(const Secret& key, std::size_t max_frame_bytes = kMaxFrameBytes);
  Sealer(Sealer&&) noexcept;
  Sealer& operator=(Sealer&&) noexcept;
  ~Sealer();

  /// Returns the frame of `message`. Send the frames completely and in the order of the calls.
  /// Throws UsageError for a message longer than the Sealer's limit.
  [[nodiscard]] std::vector<std::byte> seal(std::span<const std::byte> message);
  /// Writes the ciphertext of `plain` and its tag to `piece`, which is kPieceTagBytes longer. The
  /// order of seal().
  void seal_piece(std::span<const std::byte> plain, std::span<std::byte> piece);

 private:
  std::unique_ptr<AesGcm> cipher_;
  std::size_t max_frame_bytes_;
  std::uint64_t num_frames_ = 0;
};

class Opener {
 public:
  /// `key` is SessionKeys::receiving; no other Opener may use it. `peer` names the sender in
  /// messages.
  explicit Opener(const Secret& key, std::size_t max_frame_bytes = kMaxFrameBytes,
                  std::string peer = "the other side");
  Opener(Opener&&) noexcept;
  Opener& operator=(Opener&&) noexcept;
  ~Opener();

  /// Consumes bytes of the connection, in chunks of any size. Memory grows only with the bytes fed,
  /// not with the length that a frame claims. To bound it, call try_next() until it returns nullopt
  /// before the next call.
  void feed(std::span<const std::byte> bytes);

  /// Returns the next complete message; nullopt when more bytes are needed.
  /// Throws SystemError: with EMSGSIZE for a length over the limit, as soon as the length has
  /// arrived, and with EBADMSG for a frame that was changed, dropped, replayed or reordered. The
  /// rest of the stream is untrusted then: close the connection. Every later call throws the same.
  [[nodiscard]] std::optional<std::vector<std::byte>> try_next();

  /// Opens the next piece, which was not fed, in place: `bytes` is its ciphertext, then its
  /// plaintext. Returns false for a piece that was changed, dropped, replayed or reordered: do not
  /// use `bytes` then, and close the connection.
  [[nodiscard]] bool try_open_piece(std::span<std::byte> bytes,
                                    std::span<const std::byte, kPieceTagBytes> tag);
  /// Leaves the next piece unopened: its receiver does not use it.
  void skip_piece() noexcept { ++num_frames_; }

  /// The number of bytes that complete the next length field, or the next frame once its length is
  /// known. At least 1 right after try_next() has returned nullopt.
  [[nodiscard]] std::size_t wanted() const noexcept;

 private:
  [[noreturn]] void refuse(int error_number);

  std::unique_ptr<AesGcm> cipher_;
  std::size_t max_frame_bytes_;
  std::string peer_;
  std::uint64_t num_frames_ = 0;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // the first byte of buffer_ that is not yet opened
  int refused_ = 0;        // the error number of the refused frame; 0 without one
};

}  // namespace lockstep
