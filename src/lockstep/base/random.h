// Random numbers as a pure function of a key and a counter: the number of workers, ranks and
// restarts does not change a draw. The generator is Philox4x64-10 (Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3"), which numpy.random.Philox also uses. It needs integer
// arithmetic only, so its numbers are bit-identical on every machine.
//
// Words: the key is (seed, purpose). The counter is two 64-bit words that the caller chooses:
// (step, leaf) or (epoch, sample). Each pair of key and counter selects a separate stream of 2^66
// numbers.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace lockstep {

/// One block of four numbers: Philox4x64 with ten rounds.
[[nodiscard]] std::array<std::uint64_t, 4> philox(std::array<std::uint64_t, 4> counter,
                                                  std::array<std::uint64_t, 2> key) noexcept;

/// The stream id of a use, such as "shuffle", so that two uses of one seed draw different numbers.
/// It is the 64-bit FNV-1a hash of the word, and the same in every version: checkpoints depend on
/// it.
[[nodiscard]] constexpr std::uint64_t random_purpose(std::string_view word) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : word) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return hash;
}

struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t purpose = 0;  // random_purpose("shuffle")
};

/// The stream of one key and one counter (first, second). It is a UniformRandomBitGenerator. The
/// distributions of <random> give different numbers in different standard libraries; use the
/// members below where results must be bit-identical.
class RandomStream {
 public:
  using result_type = std::uint64_t;

  RandomStream(RandomKey key, std::uint64_t first, std::uint64_t second) noexcept
      : key_{key.seed, key.purpose}, counter_{0, first, second, 0} {}

  /// The next 64 random bits.
  std::uint64_t operator()() noexcept;

  /// Uniform in [0, 1), one of 2^53 equally spaced values.
  [[nodiscard]] double uniform() noexcept;

  /// Uniform in [0, bound), without bias. `bound` is at least 1.
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) noexcept;

  [[nodiscard]] static constexpr std::uint64_t min() noexcept { return 0; }
  [[nodiscard]] static constexpr std::uint64_t max() noexcept {
    return std::numeric_limits<std::uint64_t>::max();
  }

 private:
  std::array<std::uint64_t, 2> key_;
  std::array<std::uint64_t, 4> counter_;  // {block, first, second, 0}: the next block to make
  std::array<std::uint64_t, 4> block_{};
  unsigned used_ = 4;  // numbers of block_ already returned
};

}  // namespace lockstep
