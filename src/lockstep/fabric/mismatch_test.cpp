// Ranks that make different calls: that call throws on every rank and names both sides.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Range(2, 6)));
INSTANTIATE_TEST_SUITE_P(Device, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Range(2, 9)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 5)));

// A call with its own memory of the required length.
struct Attempt {
  Call call;
  std::vector<std::byte> input = {};
  std::vector<std::byte> output = {};
};

void make(Group& group, Attempt attempt) {
  auto& call = attempt.call;
  attempt.input.resize(input_bytes(call, group.rank(), group.size()));
  attempt.output.resize(output_bytes(call, group.rank(), group.size()));
  call.output = attempt.output;
  call.input = has_owners(call.kind) ? std::span<const std::byte>(attempt.output) : attempt.input;
  run(group, call);
}

template <typename Act>
std::string failure_of(const Act& act) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    act();
  } catch (const PeerError& error) {
    // The timeout is 30 s: no rank waited for it.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

void expect_words(const std::string& text, const std::vector<std::string>& all_words) {
  for (const auto& words : all_words) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
  }
}

struct Difference {
  std::string what;
  Call usual;
  Call other;
};

// `owners` and `others` are those of 8000 elements.
std::vector<Difference> differences(const Owners& owners, const Owners& others) {
  const Call sum{.kind = Collective::all_reduce, .dtype = DType::float32, .count = 8};
  const Call large{.kind = Collective::all_reduce, .dtype = DType::float32, .count = 8000};
  const Call broadcast{.kind = Collective::broadcast, .count = 5};
  const Call owned{.kind = Collective::reduce_to_owners,
                   .dtype = DType::float32,
                   .count = 8000,
                   .owners = &owners};
  const auto changed = [](Call call, const auto& change) {
    change(call);
    return call;
  };
  return {
      {"op", sum, changed(sum, [](Call& call) { call.op = ReduceOp::max; })},
      {"dtype", sum, changed(sum, [](Call& call) { call.dtype = DType::int32; })},
      {"count", sum, changed(sum, [](Call& call) { call.count = 9; })},
      {"count across the one-shot threshold", sum, large},
      {"count of large calls", large, changed(large, [](Call& call) { call.count = 8001; })},
      {"op of large calls", large, changed(large, [](Call& call) { call.op = ReduceOp::min; })},
      {"kind", sum, changed(sum, [](Call& call) { call.kind = Collective::all_gather; })},
      {"root", broadcast, changed(broadcast, [](Call& call) { call.root = 1; })},
      {"name", sum, changed(sum, [](Call& call) { call.name = "gradients 3"; })},
      {"flags", sum, changed(sum, [](Call& call) { call.flags = CallFlags{}; })},
      {"owners", owned, changed(owned, [&](Call& call) { call.owners = &others; })},
      {"op of owners", owned, changed(owned, [](Call& call) { call.op = ReduceOp::max; })},
      {"owners or not", owned, large},
      {"kind with owners", owned,
       changed(owned, [](Call& call) { call.kind = Collective::gather_from_owners; })},
  };
}

TEST_P(GroupTest, EveryRankNamesBothSidesOfADifference) {
  const int size = setting().size;
  const Owners owners(size, std::vector<OwnedPiece>{{0, 3000}, {size - 1, 5000}});
  const Owners others(size, std::vector<OwnedPiece>{{0, 3001}, {size - 1, 4999}});
  for (const auto& difference : differences(owners, others)) {
    SCOPED_TRACE(difference.what);
    for (const int odd : {0, setting().size - 1}) {
      run_group(setting(), [&](Group& group) {
        const bool is_odd = group.rank() == odd;
        make(group, {difference.usual});
        const auto failure =
            failure_of([&] { make(group, {is_odd ? difference.other : difference.usual}); });
        // With two ranks the group cannot know which of them is wrong: the message names rank 0 and
        // the first rank that differs from it.
        const auto usual = to_string(descriptor_of(on_device(group, difference.usual)));
        const auto other = to_string(descriptor_of(on_device(group, difference.other)));
        expect_words(failure, {"rank 0 is in " + nth_call(3) + " " + (odd == 0 ? other : usual),
                               "in " + nth_call(3) + " " + (odd == 0 ? usual : other),
                               odd == 0 ? "rank 1 in" : "rank " + std::to_string(odd) + " in"});
        expect_words(failure_of([&] { make(group, {difference.usual}); }),
                     {"is unusable after a failure", "rank 0 is in " + nth_call(3)});
      });
    }
  }
}

TEST_P(GroupTest, CallsInAnotherOrderAreNamed) {
  run_group(setting(), [](Group& group) {
    const Call first{.kind = Collective::all_reduce, .count = 4, .name = "first"};
    const Call second{.kind = Collective::all_reduce, .count = 4, .name = "second"};
    const bool is_odd = group.rank() == group.size() - 1;
    const auto failure = failure_of([&] {
      make(group, {is_odd ? second : first});
      make(group, {is_odd ? first : second});
    });
    expect_words(failure, {"\"first\"", "\"second\"", "rank 0 is in " + nth_call(2)});
  });
}

// All ranks have entered later, equal calls before the one that differs is compared: a large call
// before it blocks all of them.
TEST_P(GroupTest, ADifferenceIsFoundAmongManyCallsInFlight) {
  run_group(setting(), [](Group& group) {
    std::vector<std::byte> large(100'000);
    std::array<std::byte, 12> small{};
    const auto failure = failure_of([&] {
      std::vector<std::shared_ptr<Operation>> operations;
      const auto start = [&](std::span<std::byte> span, ReduceOp op) {
        const Call call{.kind = Collective::all_reduce,
                        .op = op,
                        .count = static_cast<std::int64_t>(span.size()),
                        .input = span,
                        .output = span};
        operations.push_back(group.start(on_device(group, call), nullptr));
      };
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      start(large, ReduceOp::sum);
      for (std::size_t i = 0; i < small.size(); ++i) {
        const bool differs = i == 2 && group.rank() == 1;
        start(std::span(small).subspan(i, 1), differs ? ReduceOp::max : ReduceOp::sum);
      }
      // No rank continues with the large call before all ranks have started all calls.
      std::this_thread::sleep_for(std::chrono::milliseconds(group.rank() == 1 ? 0 : 100));
      for (auto& operation : operations) finish(group, *operation);
    });
    expect_words(failure, {"rank 0 is in " + nth_call(5) + " all_reduce(sum, 1 × uint8",
                           "rank 1 in " + nth_call(5) + " all_reduce(max, 1 × uint8"});
  });
}

// One rank is in a call that the others do not make: they make their next call.
TEST_P(GroupTest, AnExtraCallIsNamedWhenTheOthersMakeTheirNext) {
  run_group(setting(), [](Group& group) {
    const Call usual{.kind = Collective::all_reduce, .count = 4, .name = "loss"};
    const auto failure = failure_of([&] {
      if (group.rank() == 1) run(group, {.kind = Collective::barrier, .name = "extra"});
      make(group, {usual});
    });
    expect_words(failure, {"\"loss\"", "\"extra\"", "rank 1"});
  });
}

TEST_P(GroupTest, AnExtraCallIsNamedWhenTheOthersLeave) {
  run_group(setting(), [](Group& group) {
    run(group, {.kind = Collective::barrier, .name = "last"});
    if (group.rank() != group.size() - 1) return;
    expect_words(failure_of([&] { run(group, {.kind = Collective::barrier, .name = "extra"}); }),
                 {"has left group world", std::string() + nth_call(3) + " barrier(\"extra\")",
                  "it last entered " + nth_call(2), "\"last\""});
  });
}

TEST_P(GroupTest, AMissingCallIsNamedWhenItsRankLeaves) {
  run_group(setting(), [](Group& group) {
    run(group, {.kind = Collective::barrier, .name = "last"});
    if (group.rank() == group.size() - 1) return;
    const auto failure =
        failure_of([&] { make(group, {{.kind = Collective::all_reduce, .count = 9000}}); });
    expect_words(failure, {"rank " + std::to_string(group.size() - 1) + " has left group world",
                           std::string() + nth_call(3) + " all_reduce(sum, 9000 × uint8",
                           "it last entered " + nth_call(2)});
  });
}

TEST_P(GroupTest, AMissingCallIsNamedAtTheDeadlineWhileItsRankStays) {
  // Between hosts, a header that waits for the other ranks of its host is late by 100 ms.
  const std::chrono::milliseconds patience(setting().transport == TransportKind::hosts ? 1000
                                                                                       : 300);
  run_group(setting(), [&](Group& group) {
    const auto late = group.size() - 1;
    run(group, {.kind = Collective::barrier});  // all ranks are present when the deadline starts
    const auto failure = failure_of([&] {
      if (group.rank() != late) {
        const auto barrier = group.start({.kind = Collective::barrier}, nullptr);
        group.wait(*barrier, Deadline::after(patience));
        return;
      }
      // Waits for a message that is never sent, until the others have given up.
      std::byte byte{};
      const auto never = group.receive({.peer = 0, .count = 1}, std::span(&byte, 1), nullptr);
      while (!group.done(*never)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    expect_words(failure, {std::string() + nth_call(3) + " barrier of group world timed out after ",
                           "waiting for rank " + std::to_string(late) + " (pid ",
                           "it last entered " + nth_call(2)});
    expect_words(failure_of([&] { run(group, {.kind = Collective::barrier}); }),
                 {"is unusable after a failure"});
  });
}

TEST_P(GroupTest, LeavesOnOnlyOneRankAreADifference) {
  run_group(setting(), [](Group& group) {
    Call call{.kind = Collective::all_reduce, .count = 4};
    if (group.rank() == 0) call.leaves = LeafInterval{0, 1};
    expect_words(failure_of([&] { make(group, {call}); }), {"rank 0", "rank 1", "leaves"});
  });
}

TEST_P(GroupTest, InvalidLeavesAreRefusedOnEveryRank) {
  run_group(setting(), [](Group& group) {
    Call call{.kind = Collective::all_reduce, .count = 4};
    call.leaves = LeafInterval{2 * group.rank(), 2 * group.rank() + 3};
    expect_words(failure_of([&] { make(group, {call}); }),
                 {"contributions must cover the leaves in rank order"});
  });
}

}  // namespace
}  // namespace lockstep
