#include "lockstep/flat/shard_check.h"

#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Bytes = std::vector<std::byte>;

ShardCheck::Memory memory_of(std::vector<Bytes>& pieces) {
  ShardCheck::Memory memory;
  for (auto& piece : pieces) {
    memory.push_back(
        at::from_blob(piece.data(), static_cast<std::int64_t>(piece.size()), at::kByte));
  }
  return memory;
}

TEST(ShardCheck, FindsNothingInMemoryThatStays) {
  std::vector<Bytes> pieces{Bytes(100'000), Bytes(3), Bytes(), Bytes(70'001)};
  ShardCheck check;
  EXPECT_FALSE(check.find_change(memory_of(pieces)));
  for (int step = 0; step < 30; ++step) {
    pieces[0][5] = static_cast<std::byte>(step);
    check.note(memory_of(pieces));
    EXPECT_FALSE(check.find_change(memory_of(pieces)));
  }
}

// Every byte is in one of the windows.
TEST(ShardCheck, FindsTheChangeOfAnyByte) {
  const std::vector<Bytes> clean{Bytes(100'000), Bytes(3), Bytes(70'001)};
  for (const auto& [piece, byte] : std::vector<std::pair<std::size_t, std::size_t>>{
           {0, 0}, {0, 16'384}, {0, 99'999}, {1, 2}, {2, 0}, {2, 70'000}}) {
    auto pieces = clean;
    ShardCheck check;
    int found = 0;
    for (int step = 0; step < 11; ++step) {  // 170,004 bytes in windows of 16 KiB
      pieces[piece][byte] = std::byte{0};
      check.note(memory_of(pieces));
      pieces[piece][byte] = std::byte{1};
      const auto change = check.find_change(memory_of(pieces));
      if (!change) continue;
      ++found;
      EXPECT_EQ(change->piece, piece);
      EXPECT_LE(change->begin, byte);
      EXPECT_GT(change->end, byte);
    }
    EXPECT_EQ(found, 1) << piece << ", " << byte;
  }
}

// As the two copies per host are. Other processes write to one of them again and again.
TEST(ShardCheck, FindsTheChangeOfAnyByteOfTwoMemoriesInTurn) {
  for (const std::size_t changed : {0, 1}) {
    for (std::size_t byte = 0; byte < 65'536; byte += 16'384) {
      std::vector<Bytes> copies{Bytes(65'536), Bytes(65'536)};  // four windows
      ShardCheck check;
      int found = 0;
      for (std::size_t step = 0; step < 10; ++step) {
        std::vector<Bytes> pieces{copies[step % 2]};
        check.note(memory_of(pieces));
        if (step % 2 == changed) pieces[0][byte] = std::byte{1};
        if (check.find_change(memory_of(pieces))) ++found;
      }
      EXPECT_EQ(found, 1) << "memory " << changed << ", byte " << byte;
    }
  }
}

TEST(ShardCheck, ComparesOncePerNoteAndNotAfterForget) {
  std::vector<Bytes> pieces{Bytes(100)};
  ShardCheck check;
  check.note(memory_of(pieces));
  EXPECT_FALSE(check.find_change(memory_of(pieces)));
  pieces[0][0] = std::byte{1};
  EXPECT_FALSE(check.find_change(memory_of(pieces)));
  check.note(memory_of(pieces));
  check.forget();
  pieces[0][0] = std::byte{2};
  EXPECT_FALSE(check.find_change(memory_of(pieces)));
}

}  // namespace
}  // namespace lockstep
