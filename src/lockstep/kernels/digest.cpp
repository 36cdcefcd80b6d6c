#include "lockstep/kernels/digest.h"

#include <cstring>

#include "lockstep/base/assert.h"
#include "lockstep/kernels/digest_mix_internal.h"

namespace lockstep {

void Digest::add(std::uint64_t position, std::span<const std::byte> chunk,
                 InstructionSet set) noexcept {
  LOCKSTEP_ASSERT(position % kDigestWord == 0, "a chunk starts at a multiple of 8 bytes");
  const auto whole = chunk.size() / kDigestWord * kDigestWord;
  sum_ += dispatch<DigestLoops>(
      set, [&](auto loops) { return loops.sum(position, chunk.first(whole)); });
  const auto tail = chunk.subspan(whole);
  if (tail.empty()) return;
  std::uint64_t word = 0;
  std::memcpy(&word, tail.data(), tail.size());
  sum_ += digest_mix(word ^ ((position + whole + 1 + kDigestWord - tail.size()) * kGolden));
}

std::uint64_t digest(std::span<const std::byte> whole) noexcept {
  Digest result;
  result.add(0, whole);
  return result.value();
}

}  // namespace lockstep
