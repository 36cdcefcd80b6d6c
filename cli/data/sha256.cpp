#include "cli/data/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>

#include "lockstep/base/assert.h"

namespace lockstep::cli {

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> hash{};
  unsigned length = 0;
  const int made =
      EVP_Digest(bytes.data(), bytes.size(), hash.data(), &length, EVP_sha256(), nullptr);
  LOCKSTEP_ASSERT(made == 1 && length == hash.size(), "OpenSSL has SHA-256");
  return fmt::format("{:02x}", fmt::join(hash, ""));
}

}  // namespace lockstep::cli
