// Every loop of the room is bit-identical on every instruction set. Adam is compared with a scalar
// computation of its definition. The digests of other results are constants here, so that
// architectures are compared with each other.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/kernels/adam_pass.h"
#include "lockstep/kernels/causal_softmax_pass.h"
#include "lockstep/kernels/copy_pass.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/kernels/gelu_pass.h"
#include "lockstep/kernels/noted_loops.h"
#include "lockstep/kernels/sgd_pass.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

// Not a multiple of any register width, and more than two blocks of every loop that has blocks.
constexpr std::size_t kCount = (2U << 16) + 1237;

template <typename T>
std::vector<T> draw(std::uint64_t seed, double scale = 1, double shift = 0) {
  RandomStream stream({seed, random_purpose("instruction sets test")}, 0, 0);
  std::vector<T> values(kCount);
  for (auto& value : values) {
    // Exact in float, so that all types draw the same numbers.
    const auto unit = static_cast<double>(stream() >> 40) * 0x1p-23 - 1;
    value = narrowed<T>(static_cast<WideOf<T>>(scale * unit + shift));
  }
  return values;
}

template <typename T>
std::uint64_t digest_of(const std::vector<T>& values) {
  return digest(std::as_bytes(std::span(values)));
}

// Compares the digest of run(set) with `expected` for each instruction set of this processor.
template <typename Run>
void expect_same_everywhere(const std::string& what, std::uint64_t expected, const Run& run) {
  for (const auto set : instruction_sets()) {
    EXPECT_EQ(run(set), expected) << what << " with " << to_string(set) << std::hex;
  }
}

// Adam by its definition, without vectors.
template <typename T>
[[gnu::optimize("no-tree-vectorize")]] void adam_by_definition(std::vector<T>& values,
                                                               const std::vector<T>& gradients,
                                                               std::vector<T>& averages,
                                                               std::vector<T>& squares,
                                                               const AdamStep& step) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T gradient = gradients[i] + values[i] * static_cast<T>(step.decay);
    const T g = step.decay != 0 ? gradient : gradients[i];
    const T value = values[i] * static_cast<T>(step.kept);
    averages[i] = averages[i] + (g - averages[i]) * static_cast<T>(1 - step.beta1);
    squares[i] = squares[i] * static_cast<T>(step.beta2) + static_cast<T>(1 - step.beta2) * g * g;
    const T root = std::sqrt(squares[i]) * static_cast<T>(step.root_factor);
    values[i] =
        value - static_cast<T>(step.step_size) * averages[i] / (root + static_cast<T>(step.eps));
  }
}

constexpr AdamStep kAdamW{.kept = 0.9997, .step_size = 3e-3, .root_factor = 22.4};
constexpr AdamStep kAdam{.decay = 0.01, .step_size = 3e-3, .root_factor = 22.4};

template <typename T>
std::uint64_t adam_result(const AdamStep& step, InstructionSet set) {
  auto values = draw<T>(1);
  const auto gradients = draw<T>(2, 0.1);
  auto averages = draw<WideOf<T>>(3, 0.1);
  auto squares = draw<WideOf<T>>(4, 1e-3, 1e-3);
  std::vector<WideOf<T>> masters;
  for (const auto value : values) masters.push_back(widened(value));
  const bool has_masters = !std::is_same_v<T, WideOf<T>>;
  for (int i = 0; i < 2; ++i) {
    adam_pass<T>({values.data(), gradients.data(), averages.data(), squares.data(),
                  has_masters ? masters.data() : nullptr, kCount},
                 step, set);
  }
  return digest_of(values) + 3 * digest_of(averages) + 5 * digest_of(squares) +
         (has_masters ? 7 * digest_of(masters) : 0);
}

template <typename T>
std::uint64_t adam_expected(const AdamStep& step) {
  auto values = draw<T>(1);
  const auto gradients = draw<T>(2, 0.1);
  auto averages = draw<T>(3, 0.1);
  auto squares = draw<T>(4, 1e-3, 1e-3);
  for (int i = 0; i < 2; ++i) adam_by_definition(values, gradients, averages, squares, step);
  return digest_of(values) + 3 * digest_of(averages) + 5 * digest_of(squares);
}

TEST(InstructionSets, AdamGivesTheBitsOfItsDefinition) {
  for (const auto& step : {kAdamW, kAdam}) {
    expect_same_everywhere("float", adam_expected<float>(step),
                           [&](auto set) { return adam_result<float>(step, set); });
    expect_same_everywhere("double", adam_expected<double>(step),
                           [&](auto set) { return adam_result<double>(step, set); });
  }
}

TEST(InstructionSets, AdamIsBitIdenticalForEveryPartitionOfTheMemory) {
  auto values = draw<float>(1);
  const auto gradients = draw<float>(2, 0.1);
  auto averages = draw<float>(3, 0.1);
  auto squares = draw<float>(4, 1e-3, 1e-3);
  const AdamStretch<float> whole{values.data(),  gradients.data(), averages.data(),
                                 squares.data(), nullptr,          kCount};
  for (int i = 0; i < 2; ++i) {
    for (std::size_t begin = 0; begin < kCount;) {
      const auto end = std::min(begin + 1 + begin % 777, kCount);
      adam_pass(whole.part(begin, end), kAdamW);
      begin = end;
    }
  }
  EXPECT_EQ(digest_of(values) + 3 * digest_of(averages) + 5 * digest_of(squares),
            adam_expected<float>(kAdamW));
}

template <typename T>
std::uint64_t sgd_result(const SgdStep& step, InstructionSet set) {
  auto values = draw<T>(1);
  const auto gradients = draw<T>(2, 0.1);
  auto momenta = draw<WideOf<T>>(3, 0.1);
  std::vector<WideOf<T>> masters;
  for (const auto value : values) masters.push_back(widened(value));
  sgd_pass<T>({values.data(), gradients.data(), momenta.data(), masters.data(), kCount}, step, set);
  return digest_of(values) + 3 * digest_of(momenta);
}

template <typename T>
std::uint64_t copy_result(InstructionSet set, Caching caching) {
  const auto from = draw<T>(5);
  // Aligned to a cache line, as streaming stores need.
  std::vector<T> room(kCount + 64);
  const auto past = reinterpret_cast<std::uintptr_t>(room.data()) % 64;
  const std::span to = std::span(room).subspan((64 - past) % 64 / sizeof(T), kCount);
  const bool found = dispatch<NotedLoops, T>(
      set, [&](auto loops) { return loops.copy(to, from.data(), caching); });
  EXPECT_FALSE(found);
  EXPECT_EQ(std::memcmp(to.data(), from.data(), to.size_bytes()), 0);
  return digest(std::as_bytes(to));
}

template <typename T>
std::uint64_t arithmetic_result(InstructionSet set) {
  auto to = draw<T>(6);
  const auto from = draw<T>(7);
  return dispatch<NotedLoops, T>(set, [&](auto loops) {
    EXPECT_FALSE(loops.add(to, from.data()));
    const auto sum = digest_of(to);
    EXPECT_FALSE(loops.multiply(to, 0.37));
    return sum + 3 * digest_of(to);
  });
}

// Two steps whose new values are not where the old ones are, and the same in place.
template <template <typename> typename Stretch, typename T, typename Pass>
void expect_same_elsewhere(const Pass& pass) {
  const auto gradients = draw<T>(2, 0.1);
  const auto first = draw<T>(1);
  struct Arrays {
    std::vector<T> values;
    std::vector<WideOf<T>> averages = draw<WideOf<T>>(3, 0.1);
    std::vector<WideOf<T>> squares = draw<WideOf<T>>(4, 1e-3, 1e-3);
    std::vector<WideOf<T>> masters = {};
  };
  Arrays one{.values = first};
  for (const auto value : first) one.masters.push_back(widened(value));
  Arrays other = one;
  Arrays past = one;
  Arrays third = one;
  const auto stretch = [&](Arrays& arrays) {
    Stretch<T> all;
    all.values = arrays.values.data();
    all.gradients = gradients.data();
    if constexpr (std::is_same_v<Stretch<T>, AdamStretch<T>>) {
      all.averages = arrays.averages.data();
      all.squares = arrays.squares.data();
    } else {
      all.momenta = arrays.averages.data();
    }
    all.masters = arrays.masters.data();
    all.count = kCount;
    return all;
  };
  for (int i = 0; i < 2; ++i) {
    pass(stretch(one));
    for (const auto caching : {Caching::through, Caching::past}) {
      auto& arrays = caching == Caching::past ? past : other;
      const auto old_values = std::exchange(arrays.values, std::vector<T>(kCount));
      auto elsewhere = stretch(arrays);
      elsewhere.old_values = old_values.data();
      elsewhere.caching = caching;
      for (std::size_t begin = 0; begin < kCount; begin += 777) {
        pass(elsewhere.part(begin, std::min(begin + 777, kCount)));
      }
    }
    const auto before = std::exchange(third.values, gradients);
    auto over = stretch(third);
    over.gradients = over.values;
    over.old_values = before.data();
    for (std::size_t begin = 0; begin < kCount; begin += 777) {
      pass(over.part(begin, std::min(begin + 777, kCount)));
    }
  }
  for (const auto* same : {&other, &past, &third}) {
    EXPECT_EQ(digest_of(one.values), digest_of(same->values));
    EXPECT_EQ(digest_of(one.averages), digest_of(same->averages));
    EXPECT_EQ(digest_of(one.squares), digest_of(same->squares));
    EXPECT_EQ(digest_of(one.masters), digest_of(same->masters));
  }
}

TEST(InstructionSets, NewValuesMayGoElsewhereAndOverGradients) {
  const SgdStep momentum{.lr = 0.1, .momentum = 0.9, .decay = 0.01};
  for (const auto set : instruction_sets()) {
    const auto adam = [&](const auto& stretch) { adam_pass(stretch, kAdamW, set); };
    const auto sgd = [&](const auto& stretch) { sgd_pass(stretch, momentum, set); };
    expect_same_elsewhere<AdamStretch, float>(adam);
    expect_same_elsewhere<AdamStretch, double>(adam);
    expect_same_elsewhere<AdamStretch, BFloat16>(adam);
    expect_same_elsewhere<SgdStretch, float>(sgd);
    expect_same_elsewhere<SgdStretch, double>(sgd);
    expect_same_elsewhere<SgdStretch, BFloat16>(sgd);
  }
}

// The order of squares.h, by definition: every number is added to its lane, and lanes by halves.
double added_in(std::size_t num_lanes, std::span<const double> numbers) {
  std::vector<double> lanes(num_lanes);
  for (std::size_t i = 0; i < numbers.size(); ++i) lanes[i % num_lanes] += numbers[i];
  for (auto half = num_lanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <typename T>
std::vector<double> cells_by_definition(std::span<const T> values, std::size_t lead) {
  std::vector<double> cells;
  for (std::size_t count = lead; !values.empty();) {
    std::vector<double> squares;
    for (const auto value : values.first(count)) {
      squares.push_back(static_cast<double>(widened(value)) * static_cast<double>(widened(value)));
    }
    cells.push_back(added_in(16, squares));
    values = values.subspan(count);
    count = std::min(kCellElements<T>, values.size());
  }
  return cells;
}

// The digest of the sums of cells: many, and one of 37 elements.
template <typename T>
std::uint64_t squares_result(InstructionSet set) {
  const auto values = draw<T>(8);
  const auto digest_with = [&](std::size_t lead, std::size_t count) {
    const auto part = std::span<const T>(values).first(count);
    const auto expected = cells_by_definition(part, lead);
    std::vector<double> sums(expected.size());
    dispatch<SquaresLoops, T>(set, [&](auto loops) { loops.cells(part, lead, sums); });
    EXPECT_EQ(sums, expected) << to_string(set) << ", lead " << lead << " of " << count;
    return digest_of(sums);
  };
  return digest_with(kCellElements<T>, kCount) + 3 * digest_with(37, 37) +
         5 * digest_with(16, 16 + 2 * kCellElements<T>);
}

template <typename T>
void expect_types_agree(const char* type, const std::vector<std::uint64_t>& expected) {
  const auto name = [&](const char* loop) { return std::string(loop) + " of " + type; };
  expect_same_everywhere(name("copy"), expected[0],
                         [](auto set) { return copy_result<T>(set, Caching::through); });
  expect_same_everywhere(name("streaming copy"), expected[0],
                         [](auto set) { return copy_result<T>(set, Caching::past); });
  expect_same_everywhere(name("add and multiply"), expected[1], arithmetic_result<T>);
  expect_same_everywhere(name("squares"), expected[2], squares_result<T>);
}

// The constants were computed on aarch64; x86-64 must give the same.
TEST(InstructionSets, LoopsAreBitIdenticalOnEveryArchitecture) {
  expect_types_agree<float>("float", {0x67a5529edf0809e4, 0xf1357c74608fd349, 0xadc21e2f2dfd55a9});
  expect_types_agree<double>("double",
                             {0x6824079f540f244a, 0x12d26d395a78295d, 0x331fc2d76cc34b0d});
  expect_types_agree<Float16>("float16",
                              {0xc2589046eab8753a, 0xb554d5c5868e3df6, 0x5c0dc13211a5c8ae});
  expect_types_agree<BFloat16>("bfloat16",
                               {0x421f6f9451ad6015, 0xc5ea89489ef36df9, 0x0731f9d64efc4a91});
  expect_same_everywhere("AdamW of bfloat16", 0xed0e9948deeac6a2,
                         [](auto set) { return adam_result<BFloat16>(kAdamW, set); });
  constexpr SgdStep plain{.lr = 0.1, .momentum = 0.9, .decay = 0.01};
  constexpr SgdStep nesterov{.lr = 0.1, .momentum = 0.9, .nesterov = true};
  expect_same_everywhere("SGD", 0xea94abc142ec7136,
                         [&](auto set) { return sgd_result<float>(plain, set); });
  expect_same_everywhere("SGD of bfloat16", 0x34dcbe445f796348,
                         [&](auto set) { return sgd_result<BFloat16>(nesterov, set); });
}

TEST(InstructionSets, CellsAreAddedInTheirOrder) {
  for (const std::size_t count : {0UL, 1UL, 255UL, 4096UL, 4097UL, 3 * 4096UL + 300}) {
    auto cells = draw<double>(15);
    cells.resize(count);
    std::vector<double> runs;
    for (std::size_t at = 0; at < count; at += 4096) {
      runs.push_back(
          added_in(256, std::span(cells).subspan(at, std::min<std::size_t>(4096, count - at))));
    }
    const auto expected = added_in(256, runs);
    EXPECT_EQ(total_of_cells(cells), expected) << count;
    for (const auto set : instruction_sets()) {
      const auto sum = dispatch<TotalLoops>(set, [&](auto loops) { return loops.lanes(cells); });
      EXPECT_EQ(sum, added_in(256, cells)) << to_string(set);
    }
    // Cells of zero behind the last one, in its run and in others, change nothing.
    cells.resize(count + 5000);
    EXPECT_EQ(total_of_cells(cells), expected) << count;
  }
}

TEST(InstructionSets, GeluAndSoftmaxAreBitIdenticalOnEveryArchitecture) {
  const auto gelu = [&]<typename T>(InstructionSet set, T) {
    const auto x = draw<T>(9, 10);
    const auto dy = draw<T>(10);
    std::vector<T> y(kCount);
    std::vector<T> dx(kCount);
    gelu_pass<T>(x, y, set);
    gelu_gradient_pass<T>(dy, x, dx, set);
    return digest_of(y) + 3 * digest_of(dx);
  };
  expect_same_everywhere("GELU", 0x19398aa7a62e1804, [&](auto set) { return gelu(set, float{}); });
  expect_same_everywhere("GELU of bfloat16", 0x4fc9145b7464bab3,
                         [&](auto set) { return gelu(set, BFloat16{}); });
  expect_same_everywhere("softmax", 0xa58294734825be97, [&](auto set) {
    constexpr std::size_t kLength = 131;
    auto scores = draw<float>(11, 3);
    auto gradients = draw<float>(12);
    const auto matrix = std::span(scores).first(kLength * kLength);
    causal_softmax_pass(matrix, kLength, 0.25F, set);
    causal_softmax_gradient_pass(matrix, std::span(gradients).first(kLength * kLength), kLength,
                                 0.25F, set);
    return digest_of(scores) + 3 * digest_of(gradients);
  });
}

template <typename T>
void expect_notes(T bad) {
  for (const auto set : instruction_sets()) {
    for (const std::size_t at : {0UL, 1023UL, 1024UL, kCount - 1}) {
      auto from = draw<T>(13);
      from[at] = bad;
      std::vector<T> to(kCount);
      dispatch<NotedLoops, T>(set, [&](auto loops) {
        EXPECT_TRUE(loops.has_non_finite(from)) << to_string(set) << " at " << at;
        EXPECT_TRUE(loops.copy(to, from.data(), Caching::through)) << to_string(set);
        EXPECT_TRUE(loops.copy(to, from.data(), Caching::past)) << to_string(set);
        EXPECT_TRUE(loops.add(to, from.data())) << to_string(set);
        EXPECT_TRUE(loops.multiply(to, 2)) << to_string(set);
      });
    }
  }
}

TEST(InstructionSets, NonFiniteElementsAreNotedWhereverTheyLie) {
  expect_notes<float>(std::numeric_limits<float>::infinity());
  expect_notes<double>(std::numeric_limits<double>::quiet_NaN());
  expect_notes<Float16>(Float16{0x7C00});
  expect_notes<BFloat16>(BFloat16{0xFF80});
}

TEST(InstructionSets, CopiesPastTheCachesCopyEveryByteAndNoOther) {
  const auto values = draw<float>(15);
  const auto from = std::as_bytes(std::span(values));
  for (const auto set : instruction_sets()) {
    for (const std::size_t begin : {0UL, 1UL, 63UL, 64UL}) {
      for (const std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 130UL, 5000UL}) {
        std::vector<std::byte> to(8192, std::byte{7});
        copy_past(std::span(to).subspan(begin, bytes), from.data() + 3, set);
        std::vector<std::byte> expected(to.size(), std::byte{7});
        std::memcpy(expected.data() + begin, from.data() + 3, bytes);
        EXPECT_EQ(to, expected) << to_string(set) << ", " << bytes << " bytes at " << begin;
      }
    }
  }
}

TEST(InstructionSets, DigestsAreTheSame) {
  const auto values = draw<double>(14);
  const auto bytes = std::as_bytes(std::span(values)).first(values.size() * 8 - 3);
  Digest expected;
  expected.add(24, bytes, InstructionSet::baseline);
  for (const auto set : instruction_sets()) {
    Digest other;
    other.add(24, bytes, set);
    EXPECT_EQ(other.value(), expected.value()) << to_string(set);
  }
}

TEST(InstructionSets, BaselineComesFirstAndTheBestIsTheLast) {
  EXPECT_EQ(instruction_sets().front(), InstructionSet::baseline);
  EXPECT_EQ(instruction_sets().back(), best_instruction_set());
}

}  // namespace
}  // namespace lockstep
