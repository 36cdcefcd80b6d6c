// Random numbers as a pure function of a key and a place, so that no number of workers, ranks or
// restarts changes a draw. Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers: as easy as
// 1, 2, 3"), the generator behind numpy.random.Philox: integer arithmetic only, hence the same bits
// on every machine.
//
// Words: the key is (seed, purpose), the place is two 64-bit words: (step, leaf) or (epoch,
// sample). Each pair of key and place is a stream of its own, 2^66 numbers long.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

namespace lockstep {

/// One block of four numbers: Philox4x64 with ten rounds.
[[nodiscard]] std::array<std::uint64_t, 4> philox(std::array<std::uint64_t, 4> counter,
                                                  std::array<std::uint64_t, 2> key) noexcept;

/// What a stream is for, so that two uses of one seed never draw the same numbers. The same word
/// gives the same purpose in every version: checkpoints depend on it. (64-bit FNV-1a of the word.)
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

/// The stream at one place. Meets the standard's UniformRandomBitGenerator; but the standard's own
/// distributions differ between libraries, so draw with the members below where bits matter.
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
  unsigned used_ = 4;  // numbers of block_ already given out
};

}  // namespace lockstep
