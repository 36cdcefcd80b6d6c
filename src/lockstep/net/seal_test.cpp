#include "lockstep/net/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t size) {
  Bytes bytes(size);
  RandomStream random({.seed = 7, .purpose = random_purpose("seal_test")}, size, 0);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes whole;
  for (const auto& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

// The error number of the refusal; 0 when there is none.
int refusal_of(Opener& opener) {
  try {
    (void)opener.try_next();
    return 0;
  } catch (const SystemError& error) {
    return error.error_number();
  }
}

class Seal : public ::testing::Test {
 protected:
  Secret key_ = Secret::random();
  Sealer sealer_{key_};
  Opener opener_{key_};
};

TEST_F(Seal, AMessageOfAnySizeComesOutAsItWentIn) {
  std::vector<std::size_t> sizes{0,  1,  2,    3,    15,    16,    17,   31,
                                 32, 33, 4095, 4096, 65535, 65536, 70000};
  for (std::size_t size = 34; size < 70'000; size += 997) sizes.push_back(size);
  for (const auto size : sizes) {
    const auto message = random_bytes(size);
    const auto frame = sealer_.seal(message);
    EXPECT_EQ(frame.size(), size + kFrameOverheadBytes);
    opener_.feed(frame);
    EXPECT_EQ(opener_.try_next(), message);
    EXPECT_EQ(opener_.try_next(), std::nullopt);
  }
}

TEST_F(Seal, TheLongestMessagePassesAndALongerOneIsRefusedBeforeItIsSent) {
  const auto message = random_bytes(kMaxFrameBytes);
  opener_.feed(sealer_.seal(message));
  EXPECT_EQ(opener_.try_next(), message);
  EXPECT_THROW((void)sealer_.seal(Bytes(kMaxFrameBytes + 1)), UsageError);
  opener_.feed(sealer_.seal({}));  // the refused message used no frame number
  EXPECT_EQ(opener_.try_next(), Bytes{});
}

// Computed with Python's cryptography package from the description in seal.h alone.
TEST(SealFormat, TheBytesAreThoseOfTheDescription) {
  std::array<std::byte, Secret::kBytes> key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  Sealer sealer(Secret::from_bytes(key));
  std::string digits;
  for (const std::string_view message : {"", "lockstep"}) {
    for (const auto byte : sealer.seal(std::as_bytes(std::span(message)))) {
      constexpr std::string_view alphabet = "0123456789abcdef";
      digits += alphabet[std::to_integer<unsigned>(byte) >> 4];
      digits += alphabet[std::to_integer<unsigned>(byte) & 15u];
    }
  }
  EXPECT_EQ(digits,
            "10000000a5b790813657b98bfaa46bf3664cb0f71800000089f8165b0db57b78"
            "021261d7a448e763538831d9a9ecbd27");
}

TEST_F(Seal, ChunkSizesMakeNoDifference) {
  const std::vector<Bytes> messages{random_bytes(30), {}, random_bytes(1), random_bytes(70)};
  Bytes stream;
  for (const auto& message : messages) stream = joined({stream, sealer_.seal(message)});
  for (std::size_t cut = 1; cut <= stream.size(); ++cut) {
    Opener opener(key_);
    std::vector<Bytes> opened;
    for (std::size_t at = 0; at < stream.size(); at += cut) {
      opener.feed(std::span(stream).subspan(at, std::min(cut, stream.size() - at)));
      while (auto message = opener.try_next()) opened.push_back(std::move(*message));
    }
    EXPECT_EQ(opened, messages) << "chunks of " << cut << " bytes";
  }
}

TEST_F(Seal, AnIncompleteFrameIsNoMessageAndWantsTheRemainder) {
  const auto frame = sealer_.seal(random_bytes(50));
  for (std::size_t size = 0; size < frame.size(); ++size) {
    Opener opener(key_);
    opener.feed(std::span(frame).first(size));
    EXPECT_EQ(opener.try_next(), std::nullopt);
    EXPECT_EQ(opener.wanted(), size < 4 ? 4 - size : frame.size() - size);
    opener.feed(std::span(frame).subspan(size));
    EXPECT_TRUE(opener.try_next().has_value());
  }
}

TEST_F(Seal, OneFlippedBitAnywhereIsRefused) {
  const auto frame = sealer_.seal(random_bytes(40));
  for (std::size_t bit = 0; bit < frame.size() * 8; ++bit) {
    auto changed = frame;
    changed[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    changed.resize(frame.size() + 256);  // enough bytes for a larger length
    Opener opener(key_, 512);
    opener.feed(changed);
    const bool over_limit = bit >= 9 && bit < 32;  // of the length
    EXPECT_EQ(refusal_of(opener), over_limit ? EMSGSIZE : EBADMSG) << "bit " << bit;
  }
}

TEST_F(Seal, AReplayedAReorderedAndALostFrameAreRefused) {
  const auto first = sealer_.seal(random_bytes(10));
  const auto second = sealer_.seal(random_bytes(10));
  const auto third = sealer_.seal(random_bytes(10));
  for (const auto& [stream, num_good] :
       {std::pair{joined({first, first}), 1}, std::pair{joined({second, first}), 0},
        std::pair{joined({first, third}), 1}, std::pair{joined({first, second, first}), 2}}) {
    Opener opener(key_);
    opener.feed(stream);
    for (int i = 0; i < num_good; ++i) EXPECT_TRUE(opener.try_next().has_value());
    EXPECT_EQ(refusal_of(opener), EBADMSG);
  }
}

TEST_F(Seal, AnotherKeyOpensNothing) {
  Opener opener(Secret::random());
  opener.feed(sealer_.seal(random_bytes(10)));
  EXPECT_EQ(refusal_of(opener), EBADMSG);
}

TEST_F(Seal, ALengthOverTheLimitIsRefusedWithItsFourthByte) {
  for (const std::size_t length :
       {std::size_t{0xffffffff}, std::size_t{0x80000000}, kMaxFrameBytes + 17}) {
    Opener opener(key_);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(opener.try_next(), std::nullopt);
      opener.feed(Bytes{static_cast<std::byte>(length >> (8 * i))});
    }
    try {
      (void)opener.try_next();
      FAIL() << "accepted a length of " << length;
    } catch (const SystemError& error) {
      EXPECT_EQ(error.what(), "frame 0 from the other side claims " + std::to_string(length) +
                                  " bytes, and the limit is 8454160: Message too long");
    }
  }
}

TEST_F(Seal, ALengthTooShortForATagIsRefused) {
  for (int length = 0; length < 16; ++length) {
    Opener opener(key_);
    opener.feed(Bytes{static_cast<std::byte>(length), std::byte{}, std::byte{}, std::byte{}});
    EXPECT_EQ(refusal_of(opener), EBADMSG);
  }
}

TEST_F(Seal, ARefusedStreamStaysRefusedAndKeepsNoMemory) {
  const auto good = sealer_.seal(random_bytes(10));
  auto bad = good;
  bad.back() ^= std::byte{1};
  opener_.feed(bad);
  EXPECT_EQ(refusal_of(opener_), EBADMSG);
  opener_.feed(good);
  EXPECT_EQ(refusal_of(opener_), EBADMSG);
}

TEST_F(Seal, EqualMessagesLookDifferentOnTheWire) {
  EXPECT_NE(sealer_.seal(Bytes(64)), sealer_.seal(Bytes(64)));
}

TEST_F(Seal, TheErrorNamesTheFrameAndThePeer) {
  Opener opener(key_, kMaxFrameBytes, "10.0.0.2:29500");
  opener.feed(sealer_.seal({}));
  EXPECT_TRUE(opener.try_next().has_value());
  opener.feed(Bytes(20, std::byte{}));
  try {
    (void)opener.try_next();
    FAIL() << "opened zeros";
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(),
                 "frame 1 from 10.0.0.2:29500 was changed, lost, replayed or reordered: Bad "
                 "message");
  }
}

// A piece: ciphertext and tag.
struct Piece {
  explicit Piece(Sealer& sealer, std::span<const std::byte> plain)
      : sealed(plain.size() + kPieceTagBytes) {
    sealer.seal_piece(plain, sealed);
  }
  [[nodiscard]] bool open(Opener& opener) {
    const auto whole = std::span(sealed);
    return opener.try_open_piece(whole.first(whole.size() - kPieceTagBytes),
                                 whole.last<kPieceTagBytes>());
  }
  [[nodiscard]] Bytes plain() const {
    return {sealed.begin(), sealed.end() - std::ptrdiff_t{kPieceTagBytes}};
  }
  Bytes sealed;
};

TEST_F(Seal, PiecesAndFramesOfADirectionShareTheirNumbers) {
  for (const std::size_t size : {0, 1, 48, 65536, 262144}) {
    const auto message = random_bytes(size);
    const auto frame = sealer_.seal(message);
    Piece piece(sealer_, message);
    EXPECT_TRUE(size == 0 || piece.plain() != message);
    opener_.feed(frame);
    EXPECT_EQ(opener_.try_next(), message);
    EXPECT_TRUE(piece.open(opener_));
    EXPECT_EQ(piece.plain(), message);
  }
}

TEST_F(Seal, AChangedPieceIsRefused) {
  const auto message = random_bytes(40);
  for (std::size_t bit = 0; bit < 8 * (message.size() + kPieceTagBytes); ++bit) {
    Piece piece(sealer_, message);
    piece.sealed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(piece.open(opener_)) << "bit " << bit;
  }
}

TEST_F(Seal, AReplayedOrReorderedPieceIsRefusedAndASkippedOneIsNotMissed) {
  const auto message = random_bytes(100);
  Piece first(sealer_, message);
  auto replayed = first;
  Piece second(sealer_, message);
  Piece third(sealer_, message);
  EXPECT_TRUE(first.open(opener_));
  EXPECT_FALSE(replayed.open(opener_)) << "in the position of the second one";
  EXPECT_TRUE(third.open(opener_));
  Piece fourth(sealer_, message);
  Piece fifth(sealer_, message);
  opener_.skip_piece();
  EXPECT_TRUE(fifth.open(opener_));
  EXPECT_EQ(fifth.plain(), message);
}

TEST_F(Seal, APieceOfAnotherKeyIsRefused) {
  Sealer other(Secret::random());
  Piece piece(other, random_bytes(100));
  EXPECT_FALSE(piece.open(opener_));
}

}  // namespace
}  // namespace lockstep
