#include "lockstep/kernels/reduce.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_oracle_internal.h"

namespace lockstep {
namespace {

using oracle::Bytes;

std::vector<Bytes> draw_sources(DType dtype, std::size_t count, int size, std::uint64_t seed) {
  std::vector<Bytes> sources;
  for (int rank = 0; rank < size; ++rank) {
    sources.push_back(oracle::draw(dtype, count, seed, static_cast<std::uint64_t>(rank)));
  }
  return sources;
}

std::vector<const std::byte*> starts_of(const std::vector<Bytes>& spans) {
  std::vector<const std::byte*> starts;
  for (const auto& span : spans) starts.push_back(span.data());
  return starts;
}

Bytes reduced(const Reduction& reduction, const std::vector<Bytes>& sources) {
  Bytes result(sources.front().size());
  auto* const destination = result.data();
  reduce(reduction, TreePlan::over_ranks(static_cast<int>(sources.size())), starts_of(sources),
         std::span(&destination, 1), result.size() / bytes_of(reduction.dtype));
  return result;
}

template <typename Check>
void for_each_reduction(const Check& check) {
  for (const auto dtype : kDTypes) {
    for (const auto op : kReduceOps) {
      if (is_valid_reduction(dtype, op)) check(Reduction{dtype, op});
    }
  }
}

std::string in_words(const Reduction& reduction) {
  return std::string(to_string(reduction.op)) + " of " + std::string(to_string(reduction.dtype));
}

TEST(Reduce, GivesTheBitsOfTheSerialTree) {
  for_each_reduction([](const Reduction& reduction) {
    for (const int size : {1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 33}) {
      for (const std::size_t count : {0U, 1U, 7U, 64U, 129U, 1025U}) {
        const auto sources = draw_sources(reduction.dtype, count, size, count);
        const auto place =
            oracle::first_difference(reduction.dtype, reduced(reduction, sources),
                                     oracle::reduced(reduction.dtype, reduction.op, sources));
        EXPECT_FALSE(place) << in_words(reduction) << " of " << size << " at " << *place;
      }
    }
  });
}

// Contributions [0, middle) and [middle, size) are reduced to partials first.
TEST(Reduce, OfPartialsGivesTheBitsOfTheTreeOverTheirContributions) {
  constexpr std::size_t kCount = 1025;
  for_each_reduction([](Reduction reduction) {
    reduction.weight = 7;
    const auto partial_bytes = kCount * bytes_of(partial_dtype(reduction.dtype));
    for (const int size : {2, 3, 5, 8}) {
      const auto sources = draw_sources(reduction.dtype, kCount, size, 3);
      const auto starts = starts_of(sources);
      const int middle = size == 2 ? 1 : size == 3 ? 2 : 4;
      std::vector<Bytes> partials(2, Bytes(partial_bytes));
      reduce_to_partial(reduction.dtype, reduction.op, TreePlan::over_ranks(middle),
                        std::span(starts).first(static_cast<std::size_t>(middle)),
                        partials[0].data(), kCount);
      reduce_to_partial(reduction.dtype, reduction.op, TreePlan::over_ranks(size - middle),
                        std::span(starts).subspan(static_cast<std::size_t>(middle)),
                        partials[1].data(), kCount);
      Bytes result(kCount * bytes_of(reduction.dtype));
      reduce_partials(reduction, TreePlan::over_ranks(2), size, starts_of(partials), result.data(),
                      kCount);
      EXPECT_EQ(result, reduced(reduction, sources)) << in_words(reduction) << " of " << size;
    }
  });
}

TEST(Reduce, IsBitIdenticalForEveryPartitionOfASpan) {
  constexpr std::size_t kCount = 700;
  for_each_reduction([](const Reduction& reduction) {
    const auto sources = draw_sources(reduction.dtype, kCount, 5, 1);
    const auto whole = reduced(reduction, sources);
    const auto width = bytes_of(reduction.dtype);
    for (const std::size_t step : {1U, 3U, 17U, 64U, 511U}) {
      Bytes pieces(whole.size());
      for (std::size_t begin = 0; begin < kCount; begin += step) {
        auto starts = starts_of(sources);
        for (auto& start : starts) start += begin * width;
        auto* const destination = pieces.data() + begin * width;
        reduce(reduction, TreePlan::over_ranks(5), starts, std::span(&destination, 1),
               std::min(step, kCount - begin));
      }
      EXPECT_EQ(pieces, whole) << in_words(reduction) << " in steps of " << step;
    }
  });
}

TEST(Reduce, WritesToEveryDestinationAndOverItsSources) {
  for_each_reduction([](const Reduction& reduction) {
    for (const int size : {1, 2, 5, 8}) {
      auto sources = draw_sources(reduction.dtype, 300, size, 2);
      const auto expected = reduced(reduction, sources);
      std::vector<std::byte*> destinations;
      for (auto& source : sources) destinations.push_back(source.data());
      reduce(reduction, TreePlan::over_ranks(size), starts_of(sources), destinations, 300);
      for (const auto& source : sources) EXPECT_EQ(source, expected) << in_words(reduction);
    }
  });
}

// Lines of +0, which are not written in place, among similar lines: sums that are zero, and
// negative zeros.
TEST(Reduce, ZerosInPlaceGiveTheBitsOfTheSerialTree) {
  constexpr std::size_t kLine = 16;  // floats
  constexpr std::size_t kCount = 64 * kLine + 5;
  for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
    for (const int size : {2, 3, 4, 8, 16}) {
      std::vector<Bytes> sources;
      for (int rank = 0; rank < size; ++rank) {
        auto& source = sources.emplace_back(kCount * sizeof(float));
        for (std::size_t i = 0; i < kCount; ++i) {
          const auto kind = i / kLine % 5;
          const float sign = rank % 2 == 0 ? 1.0F : -1.0F;
          const float value = kind == 0   ? 0.0F
                              : kind == 1 ? -0.0F
                              : kind == 2 ? sign
                              : kind == 3 ? sign * 0.0F
                                          : static_cast<float>(i % kLine == 7 ? rank : 0);
          oracle::write(source.data() + i * sizeof(float), value);
        }
      }
      const auto expected = oracle::reduced(DType::float32, op, sources);
      std::vector<std::byte*> destinations;
      for (auto& source : sources) destinations.push_back(source.data());
      reduce({DType::float32, op}, TreePlan::over_ranks(size), starts_of(sources), destinations,
             kCount);
      for (const auto& source : sources) EXPECT_EQ(source, expected) << size << " ranks";
    }
  }
}

TEST(Reduce, NoElementBeyondTheCountIsTouched) {
  for_each_reduction([](const Reduction& reduction) {
    const auto width = bytes_of(reduction.dtype);
    const auto sources = draw_sources(reduction.dtype, 77, 3, 3);
    Bytes result(80 * width, std::byte{0x5A});
    auto* const destination = result.data();
    reduce(reduction, TreePlan::over_ranks(3), starts_of(sources), std::span(&destination, 1), 77);
    EXPECT_EQ(Bytes(result.end() - static_cast<std::ptrdiff_t>(3 * width), result.end()),
              Bytes(3 * width, std::byte{0x5A}))
        << in_words(reduction);
  });
}

template <typename T>
std::vector<Bytes> as_sources(std::initializer_list<T> values) {
  std::vector<Bytes> sources;
  for (const T value : values) {
    sources.emplace_back(sizeof(T));
    oracle::write(sources.back().data(), value);
  }
  return sources;
}

template <typename T>
T value_of(const Reduction& reduction, std::initializer_list<T> values) {
  return oracle::read<T>(reduced(reduction, as_sources(values)).data());
}

TEST(Reduce, MinAndMaxGiveNaNIfAnyInputIsNaN) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const auto op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum}) {
    for (std::size_t place = 0; place < 5; ++place) {
      std::array<float, 5> values{1, -2, 3, -4, 5};
      values[place] = kNaN;
      EXPECT_TRUE(std::isnan(value_of<float>(
          {DType::float32, op}, {values[0], values[1], values[2], values[3], values[4]})));
    }
  }
  const auto nan = oracle::kBFloat16.encode(kNaN);
  EXPECT_TRUE(std::isnan(oracle::kBFloat16.decode(
      value_of<std::uint16_t>({DType::bfloat16, ReduceOp::max}, {0x3F80, nan, 0x4000}))));
}

TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(value_of<std::int8_t>({DType::int8, ReduceOp::sum}, {127, 1}), -128);
  EXPECT_EQ(value_of<std::uint8_t>({DType::uint8, ReduceOp::product}, {16, 17}), 16);
  EXPECT_EQ(value_of<std::int32_t>({DType::int32, ReduceOp::product}, {1 << 20, 1 << 12}), 0);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(value_of<std::int64_t>({DType::int64, ReduceOp::sum}, {kMax, 2}),
            std::numeric_limits<std::int64_t>::min() + 1);
}

TEST(Reduce, BooleansAreOredAndAnded) {
  const auto of = [](ReduceOp op, std::uint8_t a, std::uint8_t b) {
    return value_of<std::uint8_t>({DType::boolean, op}, {a, b});
  };
  for (const auto op : {ReduceOp::sum, ReduceOp::max}) {
    EXPECT_EQ(of(op, 1, 1), 1);
    EXPECT_EQ(of(op, 0, 1), 1);
    EXPECT_EQ(of(op, 0, 0), 0);
  }
  for (const auto op : {ReduceOp::product, ReduceOp::min}) {
    EXPECT_EQ(of(op, 1, 1), 1);
    EXPECT_EQ(of(op, 1, 0), 0);
  }
  EXPECT_EQ(of(ReduceOp::sum, 7, 0), 1) << "every value but 0 is true";
}

// In bfloat16 1 + 2^-9 rounds to 1, but a sum in float keeps eight such terms.
TEST(Reduce, SixteenBitTypesAreRoundedOnce) {
  const std::uint16_t one = oracle::kBFloat16.encode(1);
  const std::uint16_t small = oracle::kBFloat16.encode(0x1p-9);
  EXPECT_EQ(value_of<std::uint16_t>({DType::bfloat16, ReduceOp::sum},
                                    {one, small, small, small, small, small, small, small, small}),
            oracle::kBFloat16.encode(1 + 0x1p-6));
}

TEST(Reduce, TheAverageOfIntegersIsRefused) {
  for (const auto dtype : kDTypes) {
    if (is_floating(dtype)) {
      EXPECT_NO_THROW(expect_valid({dtype, ReduceOp::average}));
    } else {
      EXPECT_THROW(expect_valid({dtype, ReduceOp::average}), UsageError);
    }
  }
}

TEST(Reduce, IsBitIdenticalOnEveryInstructionSet) {
  for_each_reduction([](const Reduction& reduction) {
    for (const int size : {2, 7, 8}) {
      const auto sources = draw_sources(reduction.dtype, 1000, size, 4);
      for (const auto set : instruction_sets()) {
        Bytes result(sources.front().size());
        auto* const destination = result.data();
        reduce(reduction, TreePlan::over_ranks(size), starts_of(sources),
               std::span(&destination, 1), 1000, set);
        EXPECT_EQ(result, reduced(reduction, sources))
            << in_words(reduction) << " with " << to_string(set);
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
