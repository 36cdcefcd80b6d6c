// Random programs of mixed operations over overlapping groups. They are equal on all ranks except
// for the order of waits. Every result is compared with the oracle. Many more if LOCKSTEP_SOAK_SEED
// is set.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/random.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

// The execution of a program on one rank.
class Program {
 public:
  Program(Group& world, std::uint64_t seed)
      : shared_({seed, random_purpose("program")}, 0, 0),
        own_({seed, random_purpose("order")}, static_cast<std::uint64_t>(world.rank()), 0),
        groups_{std::shared_ptr<Group>(std::shared_ptr<void>(), &world),
                world.split(0, -world.rank()), world.split(world.rank() % 2, 0),
                world.split((world.rank() + 1) / 2, 0)} {
    for (auto& group : groups_)
      registered_.push_back(allocate_on_device(*group, kBuffers * kBufferBytes));
    users_.resize(groups_.size() * kBuffers);
  }

  void run(int num_operations) {
    for (number_ = 1; number_ <= static_cast<std::uint64_t>(num_operations); ++number_) {
      const auto choice = shared_.below(32);
      const auto group = shared_.below(groups_.size());
      if (choice == 0) {
        registered_[group] = reallocated(group);
      } else if (choice < 8) {
        exchange(*groups_[group]);
      } else {
        call(group);
      }
      while (!pending_.empty() && own_.below(40) < pending_.size()) finish_one();
    }
    while (!pending_.empty()) finish_one();
  }

 private:
  static constexpr std::size_t kBuffers = 4;
  static constexpr std::size_t kBufferBytes = 128U << 10;

  // An operation that is waited for once.
  using Pending = std::shared_ptr<std::function<void()>>;

  void call(std::size_t index) {
    auto& group = *groups_[index];
    const auto kind = kDataCollectives[shared_.below(kDataCollectives.size())];
    const auto dtype = kDTypes[shared_.below(kDTypes.size())];
    auto op = kReduceOps[shared_.below(kReduceOps.size())];
    if (!is_valid_reduction(dtype, op)) op = ReduceOp::sum;
    const auto largest = shared_.below(20) == 0 ? 1500U : shared_.below(3) == 0 ? 300U : 20U;
    const Call wanted{.kind = kind,
                      .dtype = dtype,
                      .op = op,
                      .root = static_cast<int>(shared_.below(64)) % group.size(),
                      .count = static_cast<std::int64_t>(shared_.below(largest)),
                      .name = "program"};
    const auto where = kMemoryKinds[shared_.below(3)];
    const bool in_place = shared_.below(2) == 0 && can_be_in_place(kind);
    const auto buffer = shared_.below(kBuffers);
    const bool registered =
        where == MemoryKind::registered || (where == MemoryKind::mixed && group.rank() % 2 == 0);
    std::span<std::byte> span;
    auto& user = users_[index * kBuffers + buffer];
    if (registered) {
      if (user) finish(user);
      span = registered_[index]->bytes().subspan(buffer * kBufferBytes, kBufferBytes);
    }
    auto checked = std::make_shared<CheckedCall>(
        group, wanted, in_place ? Form::in_place : Form::apart, span, number_);
    auto pending = std::make_shared<std::function<void()>>([checked] { checked->wait(); });
    if (registered) user = pending;
    pending_.push_back(std::move(pending));
  }

  // Sends to rank + shift and receives from rank - shift, modulo the size.
  void exchange(Group& group) {
    const int size = group.size();
    const int shift = static_cast<int>(shared_.below(8)) % size;
    const int tag = static_cast<int>(shared_.below(3));
    const auto bytes = shared_.below(10) == 0 ? 150'000U : shared_.below(300);
    const int to = (group.rank() + shift) % size;
    const int from = (group.rank() + size - shift) % size;
    const auto text_of = [&](int sender) {
      return std::make_shared<oracle::Bytes>(oracle::draw(
          DType::uint8, bytes, number_, static_cast<std::uint64_t>(group.global_rank(sender))));
    };
    const Message message{.tag = tag, .count = static_cast<std::int64_t>(bytes)};
    auto outgoing = message;
    outgoing.peer = to;
    auto incoming = message;
    incoming.peer = from;
    const auto text = text_of(group.rank());
    const auto found = std::make_shared<oracle::Bytes>(bytes);
    const auto wanted = text_of(from);
    const auto sent = group.send(on_device(group, outgoing), *text, text);
    const auto received = group.receive(on_device(group, incoming), *found, found);
    pending_.push_back(std::make_shared<std::function<void()>>(
        [&group, sent] { lockstep::finish(group, *sent); }));
    pending_.push_back(std::make_shared<std::function<void()>>([&group, received, found, wanted] {
      lockstep::finish(group, *received);
      EXPECT_EQ(*found, *wanted);
    }));
  }

  std::shared_ptr<RegisteredMemory> reallocated(std::size_t index) {
    for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
      auto& user = users_[index * kBuffers + buffer];
      if (user) finish(user);
      user = nullptr;
    }
    registered_[index] = nullptr;
    return allocate_on_device(*groups_[index], kBuffers * kBufferBytes);
  }

  void finish(const Pending& pending) {
    if (!*pending) return;
    (*pending)();
    *pending = nullptr;
  }

  void finish_one() {
    const auto chosen = pending_.begin() + static_cast<std::ptrdiff_t>(own_.below(pending_.size()));
    const auto pending = *chosen;
    pending_.erase(chosen);
    finish(pending);
  }

  RandomStream shared_;  // the same on all ranks
  RandomStream own_;
  std::vector<std::shared_ptr<Group>> groups_;
  std::vector<std::shared_ptr<RegisteredMemory>> registered_;
  std::vector<Pending> users_;
  std::deque<Pending> pending_;
  std::uint64_t number_ = 0;
};

INSTANTIATE_TEST_SUITE_P(ThreadsMappedApart, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Values(1, 2, 3)));
INSTANTIATE_TEST_SUITE_P(Device, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::apart),
                                            ::testing::Range(1, 9)));
INSTANTIATE_TEST_SUITE_P(DeviceProcesses, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(4)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 4, 5)));

TEST_P(GroupTest, RandomProgramsGiveTheResultsOfTheOracle) {
  const auto soak = Environment::of_process().find("LOCKSTEP_SOAK_SEED");
  const std::uint64_t first = soak ? std::stoull(*soak) : 1;
  const std::uint64_t num_programs = soak ? 40 : 2;
  auto setting = this->setting();
  setting.limit = std::chrono::seconds(240);
  setting.seed = first;
  // The doubles of larger groups take longer per operation.
  const int num_operations = is_on_device(setting.transport) && setting.size > 3 ? 200 : 600;
  run_group(setting, [&](Group& group) {
    for (std::uint64_t seed = first; seed < first + num_programs; ++seed) {
      Program(group, seed).run(num_operations);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed;
    }
  });
}

}  // namespace
}  // namespace lockstep
