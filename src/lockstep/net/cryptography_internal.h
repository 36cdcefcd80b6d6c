// The cryptographic primitives that net uses: OpenSSL's, and HKDF built on them. handshake.h and
// seal.h define the inputs of each computation and the reasons.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// Fills `bytes` from the kernel's random number generator. Throws SystemError.
void fill_random(std::span<std::byte> bytes);

/// Overwrites `bytes`; the compiler does not optimize this away.
void wipe(std::span<std::byte> bytes) noexcept;

/// True when equal. The time does not depend on where they differ.
[[nodiscard]] bool equal_in_constant_time(std::span<const std::byte> left,
                                          std::span<const std::byte> right) noexcept;

using Mac = std::array<std::byte, 32>;
/// HMAC with SHA-256 (RFC 2104, FIPS 180-4). Throws SystemError when OpenSSL fails.
[[nodiscard]] Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data);

/// Fills `output`, at most 255 times 32 bytes, by HKDF with SHA-256 (RFC 5869: extract, then
/// expand). Throws SystemError when OpenSSL fails.
void hkdf_sha256(std::span<const std::byte> input_key, std::span<const std::byte> salt,
                 std::span<const std::byte> info, std::span<std::byte> output);

/// AES-256 in Galois/counter mode (NIST SP 800-38D), with 96-bit nonces and 128-bit tags.
class AesGcm {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  static constexpr std::size_t kTagBytes = 16;
  using Nonce = std::array<std::byte, 12>;
  enum class Direction { seal, open };

  /// Throws SystemError when OpenSSL fails.
  AesGcm(Direction direction, std::span<const std::byte, kKeyBytes> key);

  /// Writes the ciphertext and then the tag to `sealed`, which is kTagBytes longer than `plain`.
  void seal(const Nonce& nonce, std::span<const std::byte> additional,
            std::span<const std::byte> plain, std::span<std::byte> sealed);

  /// Writes the plaintext of `sealed` (ciphertext, then tag) to `plain`, which is kTagBytes
  /// shorter. Returns false when the tag does not match: do not use `plain` then.
  [[nodiscard]] bool try_open(const Nonce& nonce, std::span<const std::byte> additional,
                              std::span<const std::byte> sealed, std::span<std::byte> plain);

  /// The same in place, for a tag that lies elsewhere: `bytes` is the ciphertext, then the
  /// plaintext.
  [[nodiscard]] bool try_open_in_place(const Nonce& nonce, std::span<const std::byte> additional,
                                       std::span<std::byte> bytes,
                                       std::span<const std::byte, kTagBytes> tag);

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };

  Direction direction_;
  std::unique_ptr<void, Free> context_;  // an EVP_CIPHER_CTX
};

}  // namespace lockstep
