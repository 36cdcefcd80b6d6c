// How close the passes of room kernels are to the limits of memory and processor, on one thread.
// Every pass runs once per round, in turns; the table has the medians over the rounds.
//
//   kernels_benchmark [millions of parameters, 25] [rounds, 15]
//
// Two limits for AdamW. The triad a = a + s b, in place, over the same number of bytes: AdamW reads
// four arrays and writes three, 28 bytes per parameter. And a loop with only AdamW's square root
// and division per element, on data in the first-level cache: on some processors this takes longer
// than reading the data from memory.
//
// Encoding and decoding gradients is compared with a copy. Rates are bytes read and written per
// second: 8 per value for a copy; 12 for bfloat16 there and back; for int8 with error feedback 13
// to encode (gradient and error read, residual and integer written) and 5 to decode. The limit is a
// loop with the same loads and stores ("memory only"); decoding bfloat16 is such a loop.
//
// "in the cache" is the same pass over 2048 values again and again: what its arithmetic takes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/kernel_limits.h"
#include "lockstep/kernels/adam_pass.h"
#include "lockstep/kernels/convert_pass.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/kernels/int8_blocks.h"
#include "lockstep/kernels/noted_loops.h"
#include "lockstep/kernels/sgd_pass.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

struct Way {
  std::string name;
  double bytes;  // moved by one call
  std::function<void()> run;
  std::vector<double> seconds = {};
};

constexpr std::size_t kFew = 2048;  // parameters or values in the first-level cache

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

std::vector<float> filled(std::size_t count, float value) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = value * (1.0F + 1e-3F * static_cast<float>(i % 97));
  return values;
}

double rate(const Way& way) { return way.bytes / median(way.seconds) / 1e9; }

// Encode and decode in turns with a copy of the same values.
std::vector<Way> compression_ways(std::size_t count, const std::vector<float>& gradients,
                                  std::vector<float>& error, std::vector<float>& decoded,
                                  std::vector<BFloat16>& halves, std::vector<std::byte>& bytes) {
  const auto n = static_cast<double>(count);
  std::vector<Way> ways;
  ways.push_back({"copy", 8 * n, [&, count] {
                    std::memcpy(decoded.data(), gradients.data(), count * sizeof(float));
                  }});
  ways.push_back({"bfloat16 encode", 6 * n, [&] { narrow_pass<BFloat16>(gradients, halves); }});
  ways.push_back({"bfloat16 decode", 6 * n, [&] { widen_pass<BFloat16>(halves, decoded); }});
  ways.push_back({"int8 encode", 13 * n, [&, count] {
                    int8_encode_pass(gradients, error, error, Int8Blocks::in(bytes, count));
                  }});
  ways.push_back({"int8 decode", 5 * n,
                  [&, count] { int8_decode_pass(Int8Blocks::in(bytes, count), decoded); }});
  ways.push_back({"bfloat16 encode, memory only", 6 * n, [&, count] {
                    encode_halves(gradients.data(), reinterpret_cast<std::uint16_t*>(halves.data()),
                                  count);
                  }});
  ways.push_back({"int8 encode, memory only", 13 * n, [&, count] {
                    encode_bytes(gradients.data(), error.data(),
                                 reinterpret_cast<std::uint8_t*>(bytes.data()), count);
                  }});
  ways.push_back({"int8 decode, memory only", 5 * n, [&, count] {
                    decode_bytes(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                 decoded.data(), count);
                  }});
  ways.push_back({"int8 encode, in the cache", 13 * n, [&, count] {
                    const auto from = std::span<const float>(gradients).first(kFew);
                    const auto lost = std::span<float>(error).first(kFew);
                    const auto to = Int8Blocks::in(bytes, count);
                    for (std::size_t i = 0; i < count / kFew; ++i) {
                      int8_encode_pass(from, lost, lost, to);
                    }
                  }});
  return ways;
}

void print_compression(std::span<const Way> ways) {
  const auto of_copy = [&](const Way& encode, const Way& decode) {
    const auto seconds = median(encode.seconds) + median(decode.seconds);
    return (encode.bytes + decode.bytes) / seconds / 1e9 / rate(ways[0]);
  };
  const auto values_of_copy = [&](const Way& encode, const Way& decode) {
    return median(ways[0].seconds) / (median(encode.seconds) + median(decode.seconds));
  };
  const auto print = [&](const char* name, std::size_t encode, std::size_t decode,
                         std::size_t encode_limit, std::size_t decode_limit) {
    fmt::print(
        "{} {:.0f} % of the bytes per second of a copy; {:.0f} % of its values per second, memory "
        "only {:.0f} %\n",
        name, 100 * of_copy(ways[encode], ways[decode]),
        100 * values_of_copy(ways[encode], ways[decode]),
        100 * values_of_copy(ways[encode_limit], ways[decode_limit]));
  };
  print("bfloat16, encode + decode:", 1, 2, 5, 2);
  print("int8, encode + decode:    ", 3, 4, 6, 7);
}

void run(std::size_t count, int rounds) {
  auto values = filled(count, 0.1F);
  auto gradients = filled(count, 1e-3F);
  auto averages = filled(count, 1e-3F);
  auto squares = filled(count, 1e-6F);
  auto other = filled(count, 0.2F);
  const AdamStep adam{.kept = 1 - 1e-6, .step_size = 1e-4, .root_factor = 1};
  const SgdStep sgd{.lr = 1e-6, .momentum = 0.9};
  const auto n = static_cast<double>(count);
  std::vector<double> cells;

  std::vector<Way> ways;
  // 28 bytes per parameter: 7/3 times the 12 bytes of the triad.
  ways.push_back({"triad, in place", 28 * n, [&] {
                    triad(values.data(), other.data(), 1e-9F, count);
                    triad(averages.data(), gradients.data(), 1e-9F, count);
                    triad(squares.data(), other.data(), 1e-12F, count / 3);
                  }});
  ways.push_back({"square root and division alone", 28 * n,
                  [&] { root_and_divide(other.data(), 4096, count / 4096); }});
  for (const auto set : instruction_sets()) {
    ways.push_back({fmt::format("AdamW, {}", to_string(set)), 28 * n, [&, set] {
                      adam_pass<float>({values.data(), gradients.data(), averages.data(),
                                        squares.data(), nullptr, count},
                                       adam, set);
                    }});
  }
  // As a step with one copy per host writes the next one.
  for (const auto caching : {Caching::through, Caching::past}) {
    const auto* const how = caching == Caching::past ? "past" : "through";
    ways.push_back({fmt::format("AdamW to other memory, {} the caches", how), 28 * n, [&, caching] {
                      adam_pass<float>({.values = other.data(),
                                        .gradients = gradients.data(),
                                        .averages = averages.data(),
                                        .squares = squares.data(),
                                        .count = count,
                                        .old_values = values.data(),
                                        .caching = caching},
                                       adam);
                    }});
  }
  ways.push_back({"AdamW, in the cache", 28 * n, [&, count] {
                    for (std::size_t i = 0; i < count / kFew; ++i) {
                      adam_pass<float>({values.data(), gradients.data(), averages.data(),
                                        squares.data(), nullptr, kFew},
                                       adam);
                    }
                  }});
  for (const auto set : instruction_sets()) {
    ways.push_back({fmt::format("SGD with momentum, {}", to_string(set)), 20 * n, [&, set] {
                      sgd_pass<float>(
                          {values.data(), gradients.data(), averages.data(), nullptr, count}, sgd,
                          set);
                    }});
  }
  ways.push_back({"copy noting non-finite elements", 8 * n, [&] {
                    dispatch<NotedLoops, float>(best_instruction_set(), [&](auto loops) {
                      return loops.copy(other, gradients.data(), Caching::past);
                    });
                  }});
  ways.push_back({"sum of squares", 4 * n, [&] {
                    constexpr auto kCell = kCellElements<float>;
                    cells.resize((count + kCell - 1) / kCell);
                    dispatch<SquaresLoops, float>(best_instruction_set(), [&](auto loops) {
                      loops.cells(gradients, std::min(kCell, count), cells);
                    });
                    (void)total_of_cells(cells);
                  }});
  ways.push_back(
      {"digest", 4 * n, [&] { (void)digest(std::as_bytes(std::span<const float>(gradients))); }});

  std::vector<BFloat16> halves(count);
  std::vector<std::byte> bytes(int8_bytes(count));
  const auto num_others = ways.size();
  std::vector<float> decoded(count);  // some are denormal, with which x86 computes slowly
  for (auto& way : compression_ways(count, gradients, averages, decoded, halves, bytes)) {
    ways.push_back(std::move(way));
  }
  for (int round = 0; round < rounds; ++round) {
    for (auto& way : ways) {
      const auto begin = Clock::now();
      way.run();
      way.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  const auto triad_rate = rate(ways[0]);
  const auto loop_rate = rate(ways[1]);
  fmt::print("{} million parameters, one thread, median of {} rounds\n", count / 1'000'000, rounds);
  fmt::print("{:<42} {:>9} {:>8} {:>9} {:>16}\n", "", "ms", "GB/s", "of triad", "of root+division");
  for (const auto& way : ways) {
    fmt::print("{:<42} {:>9.2f} {:>8.1f} {:>9.2f} {:>16.2f}\n", way.name, 1e3 * median(way.seconds),
               rate(way), rate(way) / triad_rate, rate(way) / loop_rate);
  }
  print_compression(std::span(ways).subspan(num_others));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const auto millions = argc > 1 ? std::atoi(argv[1]) : 25;
  const auto rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (millions < 1 || rounds < 1) {
    fmt::print(stderr, "usage: kernels_benchmark [millions of parameters] [rounds]\n");
    return 2;
  }
  lockstep::run(static_cast<std::size_t>(millions) * 1'000'000, rounds);
}
