// Compares each algorithm with the published examples of its standard.
#include <gtest/gtest.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/net/cryptography_internal.h"

namespace {

// While this is above 0, the kernel has no random numbers yet: calls that may block are interrupted
// by a signal, then give one byte each; calls that may not block fail.
int early_calls = 0;

}  // namespace

// Instead of the C library's function of this name, also in libraries.
extern "C" ssize_t getrandom(void* buffer, std::size_t length, unsigned flags) {
  if (early_calls > 0) {
    if ((flags & GRND_NONBLOCK) != 0) {
      errno = EAGAIN;
      return -1;
    }
    if (--early_calls % 2 == 1) {
      errno = EINTR;
      return -1;
    }
    length = 1;
  }
  return ::syscall(SYS_getrandom, buffer, length, flags);
}

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

Bytes from_hex(std::string_view digits) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Bytes of_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The bytes first, first + 1, ... up to last.
Bytes range(int first, int last) {
  Bytes bytes;
  for (int value = first; value <= last; ++value) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Bytes hmac(const Bytes& key, const Bytes& data) {
  const auto mac = hmac_sha256(key, data);
  return {mac.begin(), mac.end()};
}

Bytes hkdf(const Bytes& input_key, const Bytes& salt, const Bytes& info, std::size_t size) {
  Bytes output(size);
  hkdf_sha256(input_key, salt, info, output);
  return output;
}

TEST(Cryptography, HmacMatchesRfc4231) {
  EXPECT_EQ(hmac(Bytes(20, std::byte{0x0b}), of_text("Hi There")),
            from_hex("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  EXPECT_EQ(hmac(of_text("Jefe"), of_text("what do ya want for nothing?")),
            from_hex("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
  EXPECT_EQ(hmac(Bytes(131, std::byte{0xaa}),
                 of_text("Test Using Larger Than Block-Size Key - Hash Key First")),
            from_hex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
}

TEST(Cryptography, HkdfMatchesRfc5869) {
  const Bytes short_key(22, std::byte{0x0b});
  EXPECT_EQ(hkdf(short_key, range(0x00, 0x0c), range(0xf0, 0xf9), 42),
            from_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
                     "34007208d5b887185865"));
  EXPECT_EQ(hkdf(range(0x00, 0x4f), range(0x60, 0xaf), range(0xb0, 0xff), 82),
            from_hex("b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
                     "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
                     "cc30c58179ec3e87c14c01d5c1f3434f1d87"));
  EXPECT_EQ(hkdf(short_key, {}, {}, 42),
            from_hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
                     "9d201395faa4b61a96c8"));
}

struct GcmExample {
  const char* key;
  const char* nonce;
  const char* plain;
  const char* additional;
  const char* sealed;  // ciphertext, then tag
};

// Test cases 13, 14 and 16 of "The Galois/Counter Mode of Operation" as submitted to NIST.
constexpr std::array kGcmExamples{
    GcmExample{"0000000000000000000000000000000000000000000000000000000000000000",
               "000000000000000000000000", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    GcmExample{"0000000000000000000000000000000000000000000000000000000000000000",
               "000000000000000000000000", "00000000000000000000000000000000", "",
               "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
    GcmExample{"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
               "cafebabefacedbaddecaf888",
               "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
               "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
               "feedfacedeadbeeffeedfacedeadbeefabaddad2",
               "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
               "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
               "76fc6ece0f4e1768cddf8853bb2d551b"}};

AesGcm make_cipher(AesGcm::Direction direction, const char* key) {
  const auto bytes = from_hex(key);
  return {direction, std::span<const std::byte, AesGcm::kKeyBytes>(bytes)};
}

AesGcm::Nonce nonce_of(const char* digits) {
  AesGcm::Nonce nonce{};
  const auto bytes = from_hex(digits);
  std::copy(bytes.begin(), bytes.end(), nonce.begin());
  return nonce;
}

TEST(Cryptography, AesGcmMatchesTheExamplesGivenToNist) {
  for (const auto& example : kGcmExamples) {
    const auto plain = from_hex(example.plain);
    const auto expected = from_hex(example.sealed);
    const auto additional = from_hex(example.additional);
    auto sealer = make_cipher(AesGcm::Direction::seal, example.key);
    auto opener = make_cipher(AesGcm::Direction::open, example.key);
    for (int use = 0; use < 2; ++use) {  // the second use shows that the first leaves no state
      Bytes sealed(expected.size());
      sealer.seal(nonce_of(example.nonce), additional, plain, sealed);
      EXPECT_EQ(sealed, expected);
      Bytes opened(plain.size());
      EXPECT_TRUE(opener.try_open(nonce_of(example.nonce), additional, sealed, opened));
      EXPECT_EQ(opened, plain);
      const auto tag = std::span<const std::byte>(sealed).last<AesGcm::kTagBytes>();
      Bytes in_place(sealed.begin(), sealed.end() - AesGcm::kTagBytes);
      EXPECT_TRUE(opener.try_open_in_place(nonce_of(example.nonce), additional, in_place, tag));
      EXPECT_EQ(in_place, plain);
    }
  }
}

TEST(Cryptography, AesGcmRefusesOtherAdditionalDataAndOtherNonces) {
  const auto& example = kGcmExamples.back();
  const auto sealed = from_hex(example.sealed);
  auto additional = from_hex(example.additional);
  auto opener = make_cipher(AesGcm::Direction::open, example.key);
  Bytes opened(sealed.size() - AesGcm::kTagBytes);
  auto nonce = nonce_of(example.nonce);
  nonce[11] ^= std::byte{1};
  EXPECT_FALSE(opener.try_open(nonce, additional, sealed, opened));
  additional[0] ^= std::byte{1};
  EXPECT_FALSE(opener.try_open(nonce_of(example.nonce), additional, sealed, opened));
}

TEST(Cryptography, ComparesWholeSpans) {
  const auto bytes = range(0, 31);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto other = bytes;
    other[i] ^= std::byte{0x80};
    EXPECT_FALSE(equal_in_constant_time(bytes, other));
  }
  EXPECT_TRUE(equal_in_constant_time(bytes, range(0, 31)));
  EXPECT_FALSE(equal_in_constant_time(bytes, range(0, 30)));
}

TEST(Cryptography, RandomBytesAreCompleteAlsoIfTheKernelHasNoneYet) {
  early_calls = 6;
  Bytes bytes(64);
  fill_random(bytes);
  EXPECT_EQ(early_calls, 0);
  Bytes other(64);
  fill_random(other);
  for (std::size_t begin = 0; begin < bytes.size(); begin += 8) {
    EXPECT_NE(Bytes(&bytes[begin], &bytes[begin] + 8), Bytes(8)) << "bytes were left out";
  }
  EXPECT_NE(bytes, other);
}

TEST(Cryptography, RandomBytesDifferAndWipedBytesAreZero) {
  Bytes first(32);
  Bytes second(32);
  fill_random(first);
  fill_random(second);
  EXPECT_NE(first, second);
  wipe(first);
  EXPECT_EQ(first, Bytes(32));
}

}  // namespace
}  // namespace lockstep
