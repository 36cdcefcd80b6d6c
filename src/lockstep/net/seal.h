// Frames: messages of one direction of a connection, encrypted and authenticated, so that none can
// be read, changed, left out, repeated or moved on the way. Bytes in, bytes out.
//
// A frame is
//   length (u32, little-endian) of what follows | ciphertext | tag (16)
// by AES-256-GCM under the direction's key, with the length as additional data and the nonce
//   four zero bytes | number of the frame in its direction (u64, little-endian, from 0).
// A key is used for one direction of one connection only, so no nonce repeats; a frame at another
// place than its own has another number, and its tag does not match.
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

/// The longest message, unless both sides choose another: a store's 8 MiB value with its key.
constexpr std::size_t kMaxFrameBytes = (8u << 20) + (64u << 10);
/// What a frame adds to its message.
constexpr std::size_t kFrameOverheadBytes = 4 + 16;

class Sealer {
 public:
  /// `key` is SessionKeys::sending, for this Sealer alone.
  explicit Sealer(const Secret& key, std::size_t max_frame_bytes = kMaxFrameBytes);
  Sealer(Sealer&&) noexcept;
  Sealer& operator=(Sealer&&) noexcept;
  ~Sealer();

  /// The frame of `message`, to be sent whole and in the order of the calls.
  /// Throws UsageError for a message longer than the Sealer's limit.
  [[nodiscard]] std::vector<std::byte> seal(std::span<const std::byte> message);

 private:
  std::unique_ptr<AesGcm> cipher_;
  std::size_t max_frame_bytes_;
  std::uint64_t num_frames_ = 0;
};

class Opener {
 public:
  /// `key` is SessionKeys::receiving, for this Opener alone; `peer` is who sends, in messages.
  explicit Opener(const Secret& key, std::size_t max_frame_bytes = kMaxFrameBytes,
                  std::string peer = "the other side");
  Opener(Opener&&) noexcept;
  Opener& operator=(Opener&&) noexcept;
  ~Opener();

  /// Takes bytes from the connection, in any cuts. Keeps no more memory than was fed: a length is
  /// only believed as its bytes arrive. To stay bounded, empty try_next between calls.
  void feed(std::span<const std::byte> bytes);

  /// The next whole message; nothing when more bytes are needed.
  /// Throws SystemError, with EMSGSIZE for a length over the limit, as soon as the length is there,
  /// and with EBADMSG for a frame that was changed, left out, repeated or moved. Nothing that
  /// follows can be trusted then: close the connection. Every later call throws the same.
  [[nodiscard]] std::optional<std::vector<std::byte>> try_next();

  /// How many bytes complete the length or the frame that comes next, as far as is known; at least
  /// 1 when try_next has just returned nothing.
  [[nodiscard]] std::size_t wanted() const noexcept;

 private:
  [[noreturn]] void refuse(int error_number);

  std::unique_ptr<AesGcm> cipher_;
  std::size_t max_frame_bytes_;
  std::string peer_;
  std::uint64_t num_frames_ = 0;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // of what is not yet opened in buffer_
  int refused_ = 0;        // the error number of the frame that was refused
};

}  // namespace lockstep
