#include "lockstep/fabric/call.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string words_of(const Call& call) { return to_string(descriptor_of(call)); }

TEST(Call, IsPrintedWithItsArguments) {
  EXPECT_EQ(
      words_of(
          {.kind = Collective::all_reduce, .dtype = DType::float32, .count = 1024, .name = "loss"}),
      "all_reduce(sum, 1024 × float32, \"loss\")");
  EXPECT_EQ(words_of({.kind = Collective::broadcast, .dtype = DType::int64, .root = 2, .count = 8}),
            "broadcast(8 × int64 from rank 2)");
  EXPECT_EQ(words_of({.kind = Collective::reduce, .op = ReduceOp::max, .root = 1, .count = 3}),
            "reduce(max, 3 × uint8 to rank 1)");
  EXPECT_EQ(words_of({.kind = Collective::barrier}), "barrier");
  EXPECT_EQ(words_of({.kind = Collective::barrier, .name = "end"}), "barrier(\"end\")");
  EXPECT_EQ(words_of({.kind = Collective::allocate, .count = 4096}), "allocate(4096 bytes)");
  EXPECT_EQ(words_of({.kind = Collective::all_gather, .count = 1, .flags = CallFlags{}}),
            "all_gather(1 × uint8, with flags)");
  const Owners owners(2, std::vector<OwnedPiece>{{1, 8}});
  const auto digits = fmt::format("{:08x}", owners.digest() >> 32);
  EXPECT_EQ(words_of({.kind = Collective::reduce_to_owners,
                      .dtype = DType::float32,
                      .op = ReduceOp::average,
                      .count = 8,
                      .owners = &owners}),
            "reduce_to_owners(average, 8 × float32, owners " + digits + ")");
  EXPECT_EQ(words_of({.kind = Collective::gather_from_owners, .count = 8, .owners = &owners}),
            "gather_from_owners(8 × uint8, owners " + digits + ")");
}

TEST(Call, ALongNameIsCutAndNullTerminated) {
  const std::string name(100, 'x');
  const auto descriptor = descriptor_of({.kind = Collective::barrier, .name = name});
  EXPECT_EQ(std::string(descriptor.name), std::string(kMaxCallName, 'x'));
}

TEST(Call, TheFingerprintCoversEveryArgumentThatMustBeEqual) {
  const Call base{.kind = Collective::reduce, .dtype = DType::float32, .count = 10, .name = "a"};
  std::vector<Call> calls(9, base);
  calls[1].kind = Collective::all_reduce;
  calls[2].dtype = DType::int32;
  calls[3].op = ReduceOp::max;
  calls[4].root = 1;
  calls[5].count = 11;
  calls[6].name = "b";
  calls[7].flags = CallFlags{};
  calls[8].name = "a2345678b";
  std::set<std::uint64_t> fingerprints;
  for (const auto& call : calls) fingerprints.insert(fingerprint_of(descriptor_of(call)));
  EXPECT_EQ(fingerprints.size(), calls.size());
  EXPECT_EQ(fingerprint_of(descriptor_of(base)), fingerprint_of(descriptor_of(base)));
}

TEST(Call, TheFingerprintCoversTheOwners) {
  const Owners owners(2, std::vector<OwnedPiece>{{0, 4}, {1, 6}});
  const Owners equal(2, std::vector<OwnedPiece>{{0, 1}, {0, 3}, {1, 6}});
  const Owners other(2, std::vector<OwnedPiece>{{0, 5}, {1, 5}});
  const auto fingerprint = [](const Owners& of) {
    return fingerprint_of(
        descriptor_of({.kind = Collective::reduce_to_owners, .count = 10, .owners = &of}));
  };
  EXPECT_EQ(fingerprint(owners), fingerprint(equal));
  EXPECT_NE(fingerprint(owners), fingerprint(other));
}

TEST(Call, ArgumentsThatAKindDoesNotUseAreIgnored) {
  const Call gather{.kind = Collective::all_gather, .count = 4};
  Call other = gather;
  other.op = ReduceOp::product;
  other.root = 3;
  EXPECT_EQ(descriptor_of(gather), descriptor_of(other));
}

TEST(Call, SidesHaveTheLengthsOfTheTable) {
  struct Row {
    Collective kind;
    std::size_t root_input, other_input, root_output, other_output;
  };
  constexpr std::size_t one = 12;
  constexpr std::size_t each = 4 * 12;
  for (const auto& row :
       {Row{Collective::all_reduce, one, one, one, one},
        Row{Collective::reduce_scatter, each, each, one, one},
        Row{Collective::all_gather, one, one, each, each},
        Row{Collective::broadcast, one, 0, 0, one}, Row{Collective::reduce, one, one, one, 0},
        Row{Collective::gather, one, one, each, 0}, Row{Collective::scatter, each, 0, one, one},
        Row{Collective::all_to_all, each, each, each, each},
        Row{Collective::reduce_to_owners, one, one, one, one},
        Row{Collective::gather_from_owners, one, one, one, one},
        Row{Collective::barrier, 0, 0, 0, 0}}) {
    const Call call{.kind = row.kind, .dtype = DType::int32, .root = 2, .count = 3};
    EXPECT_EQ(input_bytes(call, 2, 4), row.root_input) << to_string(row.kind);
    EXPECT_EQ(input_bytes(call, 0, 4), row.other_input) << to_string(row.kind);
    EXPECT_EQ(output_bytes(call, 2, 4), row.root_output) << to_string(row.kind);
    EXPECT_EQ(output_bytes(call, 0, 4), row.other_output) << to_string(row.kind);
  }
}

std::string refusal_of(const Call& call, int rank = 0, int size = 2) {
  try {
    expect_valid(call, rank, size);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Call, AnInvalidCallIsRefusedWithTheReason) {
  std::array<std::byte, 8> memory{};
  const auto says = [](const Call& call, const std::string& words) {
    const auto refusal = refusal_of(call);
    EXPECT_NE(refusal.find(words), std::string::npos) << "'" << refusal << "' without " << words;
  };
  says({.kind = Collective::all_reduce, .count = -1}, "must not be negative");
  says({.kind = Collective::broadcast, .root = 2, .count = 0}, "names rank 2 as its root");
  says({.kind = Collective::reduce, .root = -1, .count = 0}, "ranks 0 to 1");
  says({.kind = Collective::all_reduce, .op = ReduceOp::average, .count = 0}, "average of uint8");
  says({.kind = Collective::all_reduce, .count = 4, .input = memory, .output = memory},
       "requires an input of 4 bytes on this rank, not 8");
  says({.kind = Collective::all_gather, .count = 8, .input = memory, .output = memory},
       "requires an output of 16 bytes");
  EXPECT_EQ(refusal_of({.kind = Collective::all_reduce, .root = 99, .count = 0}), "")
      << "the root is ignored where the kind has none";
}

TEST(Call, ACallWithOwnersNeedsThoseOfItsElementsAndRanksAndIsInPlace) {
  std::array<std::byte, 16> memory{};
  const auto span = std::span(memory).first(8);
  const Owners owners(2, std::vector<OwnedPiece>{{0, 3}, {1, 5}});
  const Owners shorter(2, std::vector<OwnedPiece>{{0, 3}, {1, 4}});
  const Owners more_ranks(3, std::vector<OwnedPiece>{{0, 3}, {1, 5}});
  const auto says = [](const Call& call, const std::string& words) {
    const auto refusal = refusal_of(call);
    EXPECT_NE(refusal.find(words), std::string::npos) << "'" << refusal << "' without " << words;
  };
  for (const auto kind : {Collective::reduce_to_owners, Collective::gather_from_owners}) {
    Call call{.kind = kind, .count = 8, .input = span, .output = span, .owners = &owners};
    EXPECT_EQ(refusal_of(call), "");
    call.output = std::span(memory).last(8);
    says(call, "works in place: input and output must be the same span");
    call.output = span;
    call.owners = &shorter;
    says(call, "the owners of 7 elements among 2 ranks, but 8 elements and a group of 2 ranks");
    call.owners = &more_ranks;
    says(call, "among 3 ranks");
    call.owners = nullptr;
    says(call, "requires owners");
  }
}

// Two ranks, elements of one byte. `at` is the offset of the shorter side in the longer one.
std::string refusal_in_place(Collective kind, int rank, std::size_t at) {
  static std::array<std::byte, 16> memory{};
  Call call{.kind = kind, .root = rank, .count = 4};
  const auto input = input_bytes(call, rank, 2);
  const auto output = output_bytes(call, rank, 2);
  call.input = std::span(memory).subspan(input < output ? at : 0, input);
  call.output = std::span(memory).subspan(input < output ? 0 : at, output);
  return refusal_of(call, rank);
}

TEST(Call, InPlaceIsAllowedOnlyWhereNoOtherRankReadsTheOutput) {
  for (const auto kind : {Collective::all_reduce, Collective::reduce}) {
    EXPECT_EQ(refusal_in_place(kind, 0, 0), "");
    EXPECT_EQ(refusal_in_place(kind, 0, 4), "") << "adjacent spans";
    EXPECT_NE(refusal_in_place(kind, 0, 2), "");
  }
  for (const auto kind : {Collective::reduce_scatter, Collective::scatter, Collective::all_gather,
                          Collective::gather}) {
    EXPECT_EQ(refusal_in_place(kind, 0, 0), "");
    EXPECT_EQ(refusal_in_place(kind, 1, 4), "");
    EXPECT_NE(refusal_in_place(kind, 0, 4), "") << "the piece of another rank";
    EXPECT_NE(refusal_in_place(kind, 1, 0), "");
    EXPECT_EQ(refusal_in_place(kind, 1, 8), "");
  }
  EXPECT_NE(refusal_in_place(Collective::all_to_all, 0, 0), "");
}

TEST(GroupFlags, AddSumsComparesAndOrsTheFlagsOfTheRanks) {
  const std::array<CallFlags, 3> flags{CallFlags{.sum = 3, .equal = 5},
                                       CallFlags{.sum = 4, .equal = 5, .any = 2},
                                       CallFlags{.equal = 5, .any = 8, .absent = true}};
  GroupFlags all;
  for (int rank = 0; rank < static_cast<int>(flags.size()); ++rank) {
    all.add(rank, flags[static_cast<std::size_t>(rank)], flags.front());
  }
  EXPECT_EQ(all.sum, 7);
  EXPECT_TRUE(all.all_equal);
  EXPECT_EQ(all.any, 10U);
  EXPECT_EQ(all.num_absent, 1);
  EXPECT_EQ(all.first_present, 0);
  all.add(3, {.equal = 6}, flags.front());
  EXPECT_FALSE(all.all_equal);
}

}  // namespace
}  // namespace lockstep
