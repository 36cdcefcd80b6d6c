#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/net/cryptography_internal.h"

namespace lockstep {
namespace {

// These OpenSSL calls fail when memory runs out or when the machine's policy forbids the algorithm;
// the data has no influence.
void require(bool succeeded, std::string_view what) {
  if (!succeeded) throw SystemError(fmt::format("OpenSSL failed: {}", what), ENOTSUP);
}

const unsigned char* as_uchar(std::span<const std::byte> bytes) noexcept {
  static constexpr unsigned char nothing = 0;  // OpenSSL treats null as a missing argument
  return bytes.empty() ? &nothing : reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* as_uchar(std::span<std::byte> bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

int as_int(std::size_t size) noexcept {
  LOCKSTEP_ASSERT(size <= std::size_t{std::numeric_limits<int>::max()},
                  "OpenSSL takes sizes as int");
  return static_cast<int>(size);
}

EVP_CIPHER_CTX* as_context(void* context) noexcept { return static_cast<EVP_CIPHER_CTX*>(context); }

// Starts with a new nonce and adds the additional data.
void begin(EVP_CIPHER_CTX* context, const AesGcm::Nonce& nonce,
           std::span<const std::byte> additional) {
  require(EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, as_uchar(nonce), -1) == 1,
          "setting the nonce of AES-256-GCM");
  int length = 0;
  require(EVP_CipherUpdate(context, nullptr, &length, as_uchar(additional),
                           as_int(additional.size())) == 1,
          "adding the additional data of AES-256-GCM");
}

void transform(EVP_CIPHER_CTX* context, std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.empty()) return;
  int length = 0;
  require(
      EVP_CipherUpdate(context, as_uchar(to), &length, as_uchar(from), as_int(from.size())) == 1,
      "processing data with AES-256-GCM");
}

bool tag_matches(EVP_CIPHER_CTX* context, std::span<const std::byte, AesGcm::kTagBytes> tag) {
  std::array<std::byte, AesGcm::kTagBytes> wanted{};
  std::copy(tag.begin(), tag.end(), wanted.begin());
  require(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, AesGcm::kTagBytes, wanted.data()) == 1,
          "setting the tag of AES-256-GCM");
  std::array<unsigned char, AesGcm::kTagBytes> rest{};
  int length = 0;
  return EVP_CipherFinal_ex(context, rest.data(), &length) == 1;
}

}  // namespace

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto count = ::getrandom(bytes.data(), bytes.size(), 0);
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      throw SystemError("cannot get random numbers from the kernel", errno);
    }
  }
}

void wipe(std::span<std::byte> bytes) noexcept { OPENSSL_cleanse(bytes.data(), bytes.size()); }

bool equal_in_constant_time(std::span<const std::byte> left,
                            std::span<const std::byte> right) noexcept {
  return left.size() == right.size() && CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) {
  Mac mac{};
  unsigned int length = 0;
  const auto* made = HMAC(EVP_sha256(), as_uchar(key), as_int(key.size()), as_uchar(data),
                          data.size(), as_uchar(std::span<std::byte>(mac)), &length);
  require(made != nullptr && length == mac.size(), "HMAC-SHA256");
  return mac;
}

void hkdf_sha256(std::span<const std::byte> input_key, std::span<const std::byte> salt,
                 std::span<const std::byte> info, std::span<std::byte> output) {
  LOCKSTEP_ASSERT(output.size() <= 255 * sizeof(Mac), "the block number has one byte");
  auto extracted = hmac_sha256(salt, input_key);
  Mac block{};
  std::vector<std::byte> data;
  data.reserve(sizeof(Mac) + info.size() + 1);  // not reallocated, so no unwiped copy remains
  for (unsigned number = 1; !output.empty(); ++number) {
    if (number == 1) {
      data.assign(info.begin(), info.end());
    } else {
      data.assign(block.begin(), block.end());
      data.insert(data.end(), info.begin(), info.end());
    }
    data.push_back(static_cast<std::byte>(number));
    block = hmac_sha256(extracted, data);
    const auto count = std::min(output.size(), block.size());
    std::copy_n(block.begin(), count, output.begin());
    output = output.subspan(count);
  }
  wipe(data);
  wipe(block);
  wipe(extracted);
}

AesGcm::AesGcm(Direction direction, std::span<const std::byte, kKeyBytes> key)
    : direction_(direction), context_(EVP_CIPHER_CTX_new()) {
  require(context_ != nullptr &&
              EVP_CipherInit_ex(as_context(context_.get()), EVP_aes_256_gcm(), nullptr,
                                as_uchar(key), nullptr, direction == Direction::seal ? 1 : 0) == 1,
          "AES-256-GCM");
}

void AesGcm::Free::operator()(void* context) const noexcept {
  EVP_CIPHER_CTX_free(as_context(context));  // wipes the key
}

void AesGcm::seal(const Nonce& nonce, std::span<const std::byte> additional,
                  std::span<const std::byte> plain, std::span<std::byte> sealed) {
  LOCKSTEP_ASSERT(direction_ == Direction::seal, "the key was set for opening");
  LOCKSTEP_ASSERT(sealed.size() == plain.size() + kTagBytes, "the tag follows the ciphertext");
  auto* context = as_context(context_.get());
  begin(context, nonce, additional);
  transform(context, plain, sealed.first(plain.size()));
  auto* tag = as_uchar(sealed.last(kTagBytes));
  int length = 0;
  require(EVP_CipherFinal_ex(context, tag, &length) == 1 &&
              EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, tag) == 1,
          "computing the tag of AES-256-GCM");
}

bool AesGcm::try_open(const Nonce& nonce, std::span<const std::byte> additional,
                      std::span<const std::byte> sealed, std::span<std::byte> plain) {
  LOCKSTEP_ASSERT(direction_ == Direction::open, "the key was set for sealing");
  LOCKSTEP_ASSERT(sealed.size() == plain.size() + kTagBytes, "the tag follows the ciphertext");
  auto* context = as_context(context_.get());
  begin(context, nonce, additional);
  transform(context, sealed.first(plain.size()), plain);
  return tag_matches(context, sealed.last<kTagBytes>());
}

bool AesGcm::try_open_in_place(const Nonce& nonce, std::span<const std::byte> additional,
                               std::span<std::byte> bytes,
                               std::span<const std::byte, kTagBytes> tag) {
  LOCKSTEP_ASSERT(direction_ == Direction::open, "the key was set for sealing");
  auto* context = as_context(context_.get());
  begin(context, nonce, additional);
  transform(context, bytes, bytes);
  return tag_matches(context, tag);
}

}  // namespace lockstep
