#include "lockstep/net/seal.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/net/cryptography_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kLengthBytes = 4;
static_assert(kFrameOverheadBytes == kLengthBytes + AesGcm::kTagBytes);
static_assert(kPieceTagBytes == AesGcm::kTagBytes);
// Every length fits in 32 bits and in the int that OpenSSL takes.
constexpr std::size_t kLargestLimit = 1u << 30;
constexpr std::size_t kKeptBytes = 128u << 10;

AesGcm::Nonce nonce_of(std::uint64_t frame) noexcept {
  AesGcm::Nonce nonce{};
  for (std::size_t i = 0; i < 8; ++i) nonce[4 + i] = static_cast<std::byte>(frame >> (8 * i));
  return nonce;
}

void write_length(std::span<std::byte> to, std::size_t length) noexcept {
  for (std::size_t i = 0; i < kLengthBytes; ++i) to[i] = static_cast<std::byte>(length >> (8 * i));
}

std::size_t read_length(std::span<const std::byte> from) noexcept {
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::size_t>(from[i]) << (8 * i);
  }
  return length;
}

std::size_t checked_limit(std::size_t max_frame_bytes) noexcept {
  LOCKSTEP_ASSERT(max_frame_bytes <= kLargestLimit, "a message has at most 1 GiB");
  return max_frame_bytes;
}

}  // namespace

Sealer::Sealer(const Secret& key, std::size_t max_frame_bytes)
    : cipher_(std::make_unique<AesGcm>(AesGcm::Direction::seal, key.bytes())),
      max_frame_bytes_(checked_limit(max_frame_bytes)) {}
Sealer::Sealer(Sealer&&) noexcept = default;
Sealer& Sealer::operator=(Sealer&&) noexcept = default;
Sealer::~Sealer() = default;

std::vector<std::byte> Sealer::seal(std::span<const std::byte> message) {
  if (message.size() > max_frame_bytes_) {
    throw UsageError(fmt::format("a message of {} bytes is too long: the limit is {}",
                                 message.size(), max_frame_bytes_));
  }
  std::vector<std::byte> frame(message.size() + kFrameOverheadBytes);
  const auto length = std::span(frame).first(kLengthBytes);
  write_length(length, message.size() + AesGcm::kTagBytes);
  cipher_->seal(nonce_of(num_frames_++), length, message, std::span(frame).subspan(kLengthBytes));
  return frame;
}

void Sealer::seal_piece(std::span<const std::byte> plain, std::span<std::byte> piece) {
  cipher_->seal(nonce_of(num_frames_++), {}, plain, piece);
}

Opener::Opener(const Secret& key, std::size_t max_frame_bytes, std::string peer)
    : cipher_(std::make_unique<AesGcm>(AesGcm::Direction::open, key.bytes())),
      max_frame_bytes_(checked_limit(max_frame_bytes)),
      peer_(std::move(peer)) {}
Opener::Opener(Opener&&) noexcept = default;
Opener& Opener::operator=(Opener&&) noexcept = default;
Opener::~Opener() = default;

void Opener::feed(std::span<const std::byte> bytes) {
  if (refused_ != 0) return;
  // Opened frames are dropped first; less than one frame remains and is moved once.
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<std::vector<std::byte>> Opener::try_next() {
  if (refused_ != 0) refuse(refused_);
  const auto waiting = std::span<const std::byte>(buffer_).subspan(begin_);
  if (waiting.size() < kLengthBytes) return std::nullopt;
  const auto length = read_length(waiting);
  if (length > max_frame_bytes_ + AesGcm::kTagBytes) refuse(EMSGSIZE);
  if (length < AesGcm::kTagBytes) refuse(EBADMSG);
  if (waiting.size() < kLengthBytes + length) return std::nullopt;
  std::vector<std::byte> message(length - AesGcm::kTagBytes);
  if (!cipher_->try_open(nonce_of(num_frames_), waiting.first(kLengthBytes),
                         waiting.subspan(kLengthBytes, length), message)) {
    refuse(EBADMSG);
  }
  ++num_frames_;
  begin_ += kLengthBytes + length;
  if (begin_ == buffer_.size()) {
    // An idle connection does not keep the memory of one long message.
    if (buffer_.capacity() > kKeptBytes) buffer_ = {};
    buffer_.clear();
    begin_ = 0;
  }
  return message;
}

bool Opener::try_open_piece(std::span<std::byte> bytes,
                            std::span<const std::byte, kPieceTagBytes> tag) {
  return cipher_->try_open_in_place(nonce_of(num_frames_++), {}, bytes, tag);
}

std::size_t Opener::wanted() const noexcept {
  const auto waiting = std::span<const std::byte>(buffer_).subspan(begin_);
  if (waiting.size() < kLengthBytes) return kLengthBytes - waiting.size();
  const auto whole = kLengthBytes + read_length(waiting);
  return whole > waiting.size() ? whole - waiting.size() : 0;
}

void Opener::refuse(int error_number) {
  refused_ = error_number;
  if (error_number == EMSGSIZE) {
    const auto length = read_length(std::span<const std::byte>(buffer_).subspan(begin_));
    throw SystemError(fmt::format("frame {} from {} claims {} bytes, and the limit is {}",
                                  num_frames_, peer_, length, max_frame_bytes_ + AesGcm::kTagBytes),
                      error_number);
  }
  throw SystemError(
      fmt::format("frame {} from {} was changed, lost, replayed or reordered", num_frames_, peer_),
      error_number);
}

}  // namespace lockstep
