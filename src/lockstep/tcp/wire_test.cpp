#include "lockstep/tcp/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "lockstep/base/error.h"
#include "lockstep/fabric/transport.h"

namespace lockstep {
namespace {

TEST(Wire, AHelloIsReadAsItWasWritten) {
  for (const bool encrypts : {false, true}) {
    const Hello hello{ConnectionKind::data, 7, encrypts};
    EXPECT_EQ(try_decode_hello(encode(hello)), hello);
    for (int stripe = 0; stripe < kMaxStripes; ++stripe) {
      const Hello one{ConnectionKind::data, 7, encrypts, stripe, kMaxStripes};
      EXPECT_EQ(try_decode_hello(encode(one)), one);
    }
  }
}

TEST(Wire, AnInvalidHelloIsRefused) {
  const auto bytes = encode(Hello{ConnectionKind::messages, 7});
  EXPECT_FALSE(try_decode_hello(std::span(bytes).first(bytes.size() - 1)));
  for (const auto& hello :
       {Hello{ConnectionKind{0}, 7}, Hello{ConnectionKind{3}, 7}, Hello{ConnectionKind{0}, 7, true},
        Hello{ConnectionKind{3}, 7, true}, Hello{ConnectionKind::data, -1},
        Hello{ConnectionKind::data, 7, false, 0, 0}, Hello{ConnectionKind::data, 7, false, 4, 4},
        Hello{ConnectionKind::data, 7, false, 0, kMaxStripes + 1},
        Hello{ConnectionKind::messages, 7, false, 1, 4}}) {
    EXPECT_FALSE(try_decode_hello(encode(hello)));
  }
}

TEST(Wire, AHeaderIsReadAsItWasWrittenAndEveryChangeOfItIsDetected) {
  const DataHeader header{.end = 3,
                          .key = {1ULL << 50, 1},
                          .offset = 1ULL << 33,
                          .length = 262'144,
                          .checksums = {1, 2, 3}};
  auto bytes = encode(header);
  EXPECT_EQ(try_decode_header(bytes), header);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(try_decode_header(bytes)) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(Wire, AHeaderOfMoreBytesThanAFrameHasIsRefused) {
  EXPECT_TRUE(try_decode_header(encode(DataHeader{.length = kMaxDataBytes})));
  EXPECT_FALSE(try_decode_header(encode(DataHeader{.length = kMaxDataBytes + 1})));
}

TEST(Wire, RandomBytesAreNoHeader) {
  std::mt19937 random(11);
  for (int i = 0; i < 100'000; ++i) {
    DataHeaderBytes bytes;
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    ASSERT_FALSE(try_decode_header(bytes));
  }
}

TEST(Wire, AnAddressIsReadAsItWasWritten) {
  for (const std::string host : {"10.0.0.2", "fe80::1234:5678:9abc:def0%enp0s31f6"}) {
    RankAddress address{{{host, 65535}}, "0123456789abcdef", ~0ULL, {4194304, 1LL << 40}};
    EXPECT_EQ(parse_rank_address(to_string(address)), address);
    address.endpoints.push_back({"10.1.0.2", 40001});
    EXPECT_EQ(parse_rank_address(to_string(address)), address);
    EXPECT_LE(to_string(address).size(), AddressExchange::kMaxBytes);
  }
}

TEST(Wire, AnotherTextIsNoAddress) {
  for (const std::string text :
       {"", "10.0.0.2:1", "10.0.0.2:1 ab", "10.0.0.2:1 ab x 2 3", "10.0.0.2 ab 1 2 3",
        "10.0.0.2:1 ab 1x 2 3", " ab 1 2 3", "10.0.0.2:1,x ab 1 2 3", "10.0.0.2:1 ab 1 2",
        "10.0.0.2:1 ab 1 2 3 4"}) {
    EXPECT_THROW((void)parse_rank_address(text), UsageError) << text;
  }
}

}  // namespace
}  // namespace lockstep
