#include "lockstep/collectives/gather_values.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/collectives/test_groups_internal.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

// Below, at and above the length that one call carries, and 1 MiB.
constexpr std::array<std::size_t, 7> kLengths{0, 1, 495, 496, 497, 5'000, std::size_t{1} << 20};

// The bytes differ by rank and position; zeros and invalid UTF-8 are among them.
std::string text_of(int rank, std::size_t length) {
  std::string text(length, '\0');
  for (std::size_t i = 0; i < length; ++i) {
    text[i] = static_cast<char>(i * 31 + i / 257 + static_cast<std::size_t>(rank) * 7);
  }
  return text;
}

const std::vector<double>& odd_doubles() {
  static const std::vector<double> all{0.0,
                                       -0.0,
                                       1.0 / 3,
                                       5e-324,
                                       std::numeric_limits<double>::max(),
                                       1e17,
                                       std::numeric_limits<double>::infinity(),
                                       -std::numeric_limits<double>::infinity(),
                                       std::numeric_limits<double>::quiet_NaN(),
                                       std::bit_cast<double>(0xFFF8'0000'DEAD'BEEFU)};
  return all;
}
constexpr std::array<std::int64_t, 4> kOddIntegers{std::numeric_limits<std::int64_t>::min(), -1,
                                                   (std::int64_t{1} << 53) + 1,
                                                   std::numeric_limits<std::int64_t>::max()};
constexpr std::array<std::uint64_t, 4> kOddUnsigned{0, (std::uint64_t{1} << 53) + 1,
                                                    std::uint64_t{1} << 63,
                                                    std::numeric_limits<std::uint64_t>::max()};

// EXPECT_EQ treats a NaN as unequal to itself and 0 as equal to -0; this compares bits.
void expect_bits(double found, double expected) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(found), std::bit_cast<std::uint64_t>(expected));
}

// Rank r passes the first r of these. nlohmann::json compares by value.
nlohmann::json json_of(int rank) {
  auto value = nlohmann::json::array({nullptr,
                                      true,
                                      "Grüße\n\"",
                                      1e300,
                                      nlohmann::json::object(),
                                      std::numeric_limits<std::uint64_t>::max(),
                                      {{"long", std::string(3'000, 'x')}}});
  value.erase(value.begin() + rank + 1, value.end());
  return value;
}

// First the same length on all ranks, then a different one on each rank.
void texts_arrive(const ProcessGroup& group) {
  const auto size = static_cast<std::size_t>(group.size());
  for (std::size_t shift = 0; shift < kLengths.size(); ++shift) {
    for (const std::size_t stride : {0, 1}) {
      const auto length = [&](int rank) {
        return kLengths[(shift + stride * static_cast<std::size_t>(rank)) % kLengths.size()];
      };
      const auto texts = gather_values(group, text_of(group.rank(), length(group.rank())));
      ASSERT_EQ(texts.size(), size);
      for (int rank = 0; rank < group.size(); ++rank) {
        // Not EXPECT_EQ, which would print a megabyte.
        EXPECT_TRUE(texts[static_cast<std::size_t>(rank)] == text_of(rank, length(rank)))
            << "rank " << rank << ", " << length(rank) << " bytes";
      }
    }
    for (int root = 0; root < group.size(); ++root) {
      const auto own = text_of(group.rank(), kLengths[shift]);
      EXPECT_TRUE(broadcast_value(group, own, root) == text_of(root, kLengths[shift])) << root;
    }
  }
}

template <typename T>
void numbers_arrive(const ProcessGroup& group, const std::vector<T>& numbers,
                    const std::function<void(T, T)>& expect_same) {
  for (std::size_t first = 0; first < numbers.size(); ++first) {
    const auto of_rank = [&](int rank) {
      return numbers[(first + static_cast<std::size_t>(rank)) % numbers.size()];
    };
    const auto all = gather_values(group, of_rank(group.rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(group.size()));
    for (int rank = 0; rank < group.size(); ++rank) {
      expect_same(all[static_cast<std::size_t>(rank)], of_rank(rank));
    }
    const int root = group.size() - 1;
    expect_same(broadcast_value(group, of_rank(group.rank()), root), of_rank(root));
  }
  // Rank r passes all numbers r × 20 times: zero numbers, and more than one call carries.
  std::vector<T> own;
  for (int i = 0; i < 20 * group.rank(); ++i) own.insert(own.end(), numbers.begin(), numbers.end());
  const auto lists = gather_values(group, std::span<const T>(own));
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto& list = lists.at(static_cast<std::size_t>(rank));
    ASSERT_EQ(list.size(), numbers.size() * static_cast<std::size_t>(20 * rank));
    for (std::size_t i = 0; i < list.size(); ++i) expect_same(list[i], numbers[i % numbers.size()]);
    EXPECT_EQ(broadcast_value(group, std::span<const T>(own), rank).size(), list.size());
  }
}

void all_numbers_arrive(const ProcessGroup& group) {
  numbers_arrive<double>(group, odd_doubles(), expect_bits);
  numbers_arrive<std::int64_t>(group, {kOddIntegers.begin(), kOddIntegers.end()},
                               [](auto found, auto expected) { EXPECT_EQ(found, expected); });
  numbers_arrive<std::uint64_t>(group, {kOddUnsigned.begin(), kOddUnsigned.end()},
                                [](auto found, auto expected) { EXPECT_EQ(found, expected); });
}

void json_arrives(const ProcessGroup& group) {
  const auto all = gather_values(group, json_of(group.rank()));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], json_of(rank));
    EXPECT_EQ(broadcast_value(group, json_of(group.rank()), rank), json_of(rank));
  }
  const nlohmann::ordered_json own{{"z", group.rank()}, {"a", 0}};
  EXPECT_EQ(gather_values(group, own).back().dump(),
            R"({"z":)" + std::to_string(group.size() - 1) + R"(,"a":0})")
      << "the class defines the order of members";
}

class ValuesOnRanks : public ::testing::TestWithParam<int> {
 protected:
  void with_groups(const std::function<void(ProcessGroup&)>& body) {
    with_sound_groups(GetParam(), body);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ValuesOnRanks, ::testing::Range(1, 6));

TEST_P(ValuesOnRanks, TextsOfAnyLengthArriveUnchanged) { with_groups(texts_arrive); }
TEST_P(ValuesOnRanks, NumbersArriveBitForBit) { with_groups(all_numbers_arrive); }
TEST_P(ValuesOnRanks, JsonArrives) { with_groups(json_arrives); }

TEST_P(ValuesOnRanks, ValuesArriveBetweenProcesses) {
  testing::run_ranks_as_processes(GetParam(), [](testing::Rank& self) {
    const ProcessGroup group(world_of_processes(self.rank(), self.size()));
    texts_arrive(group);
    all_numbers_arrive(group);
    json_arrives(group);
    group.barrier().wait();
  });
}

// `faulty` is the rank with an invalid value: it throws UsageError, the others throw PeerError
// naming it, and the group stays usable.
template <typename Action>
void expect_fault(const ProcessGroup& group, int faulty, const std::string& words, Action action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_EQ(group.rank(), faulty) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  } catch (const PeerError& error) {
    EXPECT_NE(group.rank(), faulty) << error.what();
    EXPECT_EQ(error.rank(), faulty);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  EXPECT_EQ(gather_values(group, std::int64_t{3}),
            std::vector<std::int64_t>(static_cast<std::size_t>(group.size()), 3));
}

TEST_P(ValuesOnRanks, ARankWhoseValueIsTooLongIsNamedOnAllRanks) {
  with_groups([](ProcessGroup& group) {
    const int faulty = group.size() - 1;
    const std::string own(group.rank() == faulty ? kMaxGatheredBytes + 1 : 600, 'x');
    expect_fault(group, faulty, "it has 67108865 bytes; the maximum is 67108864",
                 [&] { (void)gather_values(group, own); });
    expect_fault(group, faulty, "it has 67108865 bytes",
                 [&] { (void)broadcast_value(group, own, faulty); });
  });
}

TEST_P(ValuesOnRanks, ARankWithInvalidJsonIsNamedOnAllRanks) {
  with_groups([](ProcessGroup& group) {
    const int faulty = group.size() - 1;
    const nlohmann::json own = group.rank() == faulty ? "\xFF is not UTF-8" : "fine";
    expect_fault(group, faulty, "invalid UTF-8", [&] { (void)gather_values(group, own); });
    expect_fault(group, faulty, "invalid UTF-8",
                 [&] { (void)broadcast_value(group, own, faulty); });
    if (faulty > 0) {
      EXPECT_EQ(broadcast_value(group, own, 0), "fine") << "only the value of root is written";
    }
  });
}

TEST_P(ValuesOnRanks, DifferentTypesThrowOnEveryRank) {
  if (GetParam() == 1) return;
  with_groups([](ProcessGroup& group) {
    const bool differs = group.rank() == 1;
    try {
      if (differs) {
        (void)gather_values(group, 1.0);
      } else {
        (void)gather_values(group, std::int64_t{1}, {.name = "values"});
      }
      ADD_FAILURE() << "nothing was thrown";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), differs ? 0 : 1);
      const std::string words = error.what();
      EXPECT_NE(words.find("a double"), std::string::npos) << words;
      EXPECT_NE(words.find("an int64"), std::string::npos) << words;
    }
    // The value of root is long, so that all ranks make two calls.
    const std::string own(5'000, 'x');
    if (differs) {
      EXPECT_THROW((void)broadcast_value(group, nlohmann::json(own)), PeerError);
    } else {
      EXPECT_EQ(broadcast_value(group, own), own);
    }
    // A list of one number has another type than that number.
    const std::vector<double> list{1.0};
    const std::span<const double> numbers(list);
    if (differs) {
      EXPECT_THROW((void)broadcast_value(group, numbers), PeerError);
      EXPECT_THROW((void)gather_values(group, numbers), PeerError);
    } else {
      EXPECT_EQ(broadcast_value(group, 1.0), 1.0);
      EXPECT_THROW((void)gather_values(group, 1.0), PeerError);
    }
    EXPECT_EQ(gather_values(group, "still here").size(), static_cast<std::size_t>(group.size()));
  });
}

// A class whose own text parse() refuses.
struct Unreadable {
  [[nodiscard]] static std::string dump() { return "?"; }
  static Unreadable parse(const std::string& text) {
    throw std::runtime_error("starts with " + text);
  }
};

TEST_P(ValuesOnRanks, InvalidJsonNamesTheRankThatSentIt) {
  with_groups([](ProcessGroup& group) {
    const int root = group.size() - 1;
    try {
      (void)broadcast_value(group, Unreadable{}, root, {.name = "plans"});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), root);
      EXPECT_NE(std::string(error.what()).find("for \"plans\" is invalid: starts with ?"),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(Values, AreOrderedByRankOfTheGroupAndErrorsNameGlobalRanks) {
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  testing::run_ranks_as_threads(3, [&](testing::Rank& self) {
    const ProcessGroup world(point.join(self.rank(), self.size()));
    const auto group = world.split(self.rank() == 0 ? 1 : 0);
    const auto found = gather_values(group, static_cast<std::int64_t>(self.rank()));
    EXPECT_EQ(found,
              self.rank() == 0 ? std::vector<std::int64_t>{0} : (std::vector<std::int64_t>{1, 2}));
    if (self.rank() > 0) {
      const nlohmann::json own = self.rank() == 2 ? "\xFF" : "";
      expect_fault(group, group.size() - 1, "the value of rank 2 for", [&] {
        try {
          (void)gather_values(group, own);
        } catch (const PeerError& error) {
          EXPECT_EQ(error.rank(), 2);
          throw PeerError(1, error.what());  // the rank in the group
        }
      });
    }
    world.barrier().wait();
  });
}

TEST(Values, AnInvalidRootIsRefused) {
  const ProcessGroup group(World::alone());
  EXPECT_THROW((void)broadcast_value(group, "x", 1), UsageError);
  EXPECT_THROW((void)broadcast_value(group, nlohmann::json(1), -1), UsageError);
}

}  // namespace
}  // namespace lockstep
