#include <cstring>

#include "lockstep/kernels/digest.h"
#include "lockstep/kernels/digest_mix_internal.h"

namespace lockstep {

template <InstructionSet Set>
std::uint64_t DigestLoops<Set>::sum(std::uint64_t position,
                                    std::span<const std::byte> words) noexcept {
  const auto* const bytes = words.data();
  const auto count = words.size() / kDigestWord;
  const auto key = (position + 1) * kGolden;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i * kDigestWord, kDigestWord);
    sum += digest_mix(word ^ (key + i * (kDigestWord * kGolden)));
  }
  return sum;
}
template struct DigestLoops<kCompiledFor>;

}  // namespace lockstep
