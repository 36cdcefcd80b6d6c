// Messages between two ranks: sizes around the thresholds of the message queue, tags in any order,
// messages to the own rank, many messages in flight.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/test_calls_internal.h"
#include "lockstep/fabric/test_group_internal.h"

namespace lockstep {
namespace {

using oracle::Bytes;

// The thresholds of the shared-memory transport: the bytes that fit into an envelope and into a
// piece, and the number of messages of other tags that may wait.
constexpr std::size_t kEnvelopeBytes = 128;
constexpr std::size_t kPieceBytes = 64U << 10;
constexpr std::size_t kEnvelopes = 16;

INSTANTIATE_TEST_SUITE_P(Threads, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 3, 5)));
INSTANTIATE_TEST_SUITE_P(Device, GroupTest,
                         ::testing::Combine(kDeviceTransports, ::testing::Values(Ranks::threads),
                                            ::testing::Values(1, 2, 5)));
INSTANTIATE_TEST_SUITE_P(Processes, GroupTest,
                         ::testing::Combine(kTransports, ::testing::Values(Ranks::processes),
                                            ::testing::Values(2, 4)));

Message message_of(int peer, int tag, std::size_t bytes) {
  return {.peer = peer, .tag = tag, .count = static_cast<std::int64_t>(bytes)};
}

// The contents of message `number` from rank `from` to rank `to`.
Bytes text_of(int from, int to, int number, std::size_t bytes) {
  return oracle::draw(DType::uint8, bytes,
                      1000 * static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(to),
                      static_cast<std::uint64_t>(number));
}

struct Post {
  Bytes bytes;
  std::shared_ptr<Operation> operation;
};

std::unique_ptr<Post> send(Group& group, int to, int tag, int number, std::size_t bytes) {
  auto post = std::make_unique<Post>();
  post->bytes = text_of(group.rank(), to, number, bytes);
  post->operation = group.send(on_device(group, message_of(to, tag, bytes)), post->bytes, nullptr);
  return post;
}

void receive(Group& group, int from, int tag, int number, std::size_t bytes) {
  Bytes found(bytes);
  finish(group, *group.receive(on_device(group, message_of(from, tag, bytes)), found, nullptr));
  EXPECT_EQ(found, text_of(from, group.rank(), number, bytes))
      << "message " << number << " from " << from << ", " << bytes << " bytes, tag " << tag;
}

TEST_P(GroupTest, MessagesOfEverySizeArriveWhole) {
  run_group(setting(), [](Group& group) {
    const int size = group.size();
    const int next = (group.rank() + 1) % size;
    const int previous = (group.rank() + size - 1) % size;
    int number = 0;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, kEnvelopeBytes - 1, kEnvelopeBytes, kEnvelopeBytes + 1,
          kPieceBytes - 1, kPieceBytes, kPieceBytes + 1, 2 * kPieceBytes, 5 * kPieceBytes + 17}) {
      const auto post = send(group, next, 4, ++number, bytes);
      receive(group, previous, 4, number, bytes);
      finish(group, *post->operation);
    }
  });
}

TEST_P(GroupTest, MessagesFromRegisteredMemoryArriveWhole) {
  run_group(setting(), [](Group& group) {
    const int size = group.size();
    const int next = (group.rank() + 1) % size;
    const int previous = (group.rank() + size - 1) % size;
    constexpr std::size_t kBytes = 200'000;
    const auto memory = allocate_on_device(group, kBytes);
    const auto text = text_of(group.rank(), next, 1, kBytes);
    std::copy(text.begin(), text.end(), memory->bytes().begin());
    const auto sent =
        group.send(on_device(group, message_of(next, 0, kBytes)), memory->bytes(), nullptr);
    receive(group, previous, 0, 1, kBytes);
    finish(group, *sent);
  });
}

TEST_P(GroupTest, TagsAreReceivedInAnotherOrderThanSent) {
  run_group(setting(), [](Group& group) {
    const int size = group.size();
    const int next = (group.rank() + 1) % size;
    const int previous = (group.rank() + size - 1) % size;
    const auto bytes_of_tag = [](int tag) { return static_cast<std::size_t>(tag) * 30'000 + 5; };
    std::vector<std::unique_ptr<Post>> posts;
    for (int tag = 0; tag < 8; ++tag) {
      posts.push_back(send(group, next, tag, tag, bytes_of_tag(tag)));
    }
    for (const int tag : {3, 7, 0, 5, 6, 1, 2, 4}) {
      receive(group, previous, tag, tag, bytes_of_tag(tag));
    }
    for (auto& post : posts) finish(group, *post->operation);
  });
}

// More messages than a message queue has envelopes, and the oldest is received last.
TEST_P(GroupTest, ManyMessagesOfOneTagArriveInOrderAroundOneThatWaits) {
  run_group(setting(), [](Group& group) {
    const int size = group.size();
    const int next = (group.rank() + 1) % size;
    const int previous = (group.rank() + size - 1) % size;
    constexpr int kMessages = 3 * static_cast<int>(kEnvelopes);
    std::vector<std::unique_ptr<Post>> posts;
    posts.push_back(send(group, next, 1, 0, 40));
    for (int number = 1; number < kMessages; ++number) {
      posts.push_back(send(group, next, 2, number, 40));
    }
    for (int number = 1; number < kMessages; ++number) receive(group, previous, 2, number, 40);
    receive(group, previous, 1, 0, 40);
    for (auto post = posts.rbegin(); post != posts.rend(); ++post) {
      finish(group, *(*post)->operation);
    }
  });
}

// The first receive of tag 2 waits for the pieces of another message; the second receive must not
// get the message of the first.
TEST_P(GroupTest, ReceivesOfOneTagMatchMessagesInTheOrderOfTheirStart) {
  run_group(setting(), [](Group& group) {
    const int size = group.size();
    const int next = (group.rank() + 1) % size;
    const int previous = (group.rank() + size - 1) % size;
    constexpr int kMessages = 9;
    const auto tag_of = [](int number) { return number == 0 ? 1 : 2; };
    const auto bytes_of = [](int number) -> std::size_t { return number < 2 ? 300'000 : 50; };
    std::vector<std::unique_ptr<Post>> posts;
    std::vector<std::unique_ptr<Post>> receives;
    for (int number = 0; number < kMessages; ++number) {
      posts.push_back(send(group, next, tag_of(number), number, bytes_of(number)));
    }
    for (int number = 0; number < kMessages; ++number) {
      auto& post = *receives.emplace_back(std::make_unique<Post>());
      post.bytes.resize(bytes_of(number));
      post.operation =
          group.receive(on_device(group, message_of(previous, tag_of(number), bytes_of(number))),
                        post.bytes, nullptr);
    }
    for (int number = kMessages; number-- > 0;) {
      const auto& post = *receives[static_cast<std::size_t>(number)];
      finish(group, *post.operation);
      EXPECT_TRUE(post.bytes == text_of(previous, group.rank(), number, bytes_of(number)))
          << "message " << number;
    }
    for (auto& post : posts) finish(group, *post->operation);
  });
}

TEST_P(GroupTest, EveryRankSendsToEveryRankAndToItself) {
  run_group(setting(), [](Group& group) {
    std::vector<std::unique_ptr<Post>> posts;
    const auto size_of = [](int from, int to) {
      return static_cast<std::size_t>((from * 7 + to * 3) % 5) * 50'000 + 100;
    };
    for (int number = 0; number < 3; ++number) {
      for (int peer = 0; peer < group.size(); ++peer) {
        posts.push_back(send(group, peer, 9, number, size_of(group.rank(), peer)));
      }
    }
    for (int number = 0; number < 3; ++number) {
      for (int peer = group.size() - 1; peer >= 0; --peer) {
        receive(group, peer, 9, number, size_of(peer, group.rank()));
      }
    }
    for (auto& post : posts) finish(group, *post->operation);
  });
}

TEST_P(GroupTest, MessagesAndCallsProgressTogether) {
  run_group(setting(), [](Group& group) {
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    for (int number = 0; number < 10; ++number) {
      const auto post = send(group, next, 0, number, 100'000);
      CheckedCall call(group, {.kind = Collective::all_reduce, .count = 90'000}, Form::apart, {},
                       static_cast<std::uint64_t>(number));
      if (group.rank() % 2 == 0) call.wait();
      receive(group, previous, 0, number, 100'000);
      if (group.rank() % 2 != 0) call.wait();
      finish(group, *post->operation);
    }
  });
}

TEST_P(GroupTest, AMessageOfAnotherSizeIsRefusedOnBothSides) {
  const auto setting = this->setting();
  if (setting.size < 2) return;
  for (const std::size_t sent : {std::size_t{40}, std::size_t{300'000}}) {
    run_group(setting, [&](Group& group) {
      try {
        run(group, {.kind = Collective::barrier});  // the group exists on all ranks
      } catch (const PeerError&) {
        EXPECT_GT(group.rank(), 1) << "a late rank may get the error here";
      }
      if (group.rank() > 1) return;
      Bytes bytes(sent + static_cast<std::size_t>(group.rank()));
      const auto message = message_of(1 - group.rank(), 6, bytes.size());
      try {
        finish(group, group.rank() == 0
                          ? *group.send(on_device(group, message), bytes, nullptr)
                          : *group.receive(on_device(group, message), bytes, nullptr));
        ADD_FAILURE() << "no error";
      } catch (const PeerError& error) {
        EXPECT_NE(std::string(error.what()).find("tag 6"), std::string::npos) << error.what();
      }
    });
  }
}

TEST(Messages, ASpanThatDoesNotMatchTheCountIsRefused) {
  run_group({}, [](Group& group) {
    Bytes bytes(10);
    const Message message{.peer = 0, .dtype = DType::float32, .count = 3};
    EXPECT_THROW((void)group.send(message, bytes, nullptr), UsageError);
    EXPECT_THROW((void)group.receive(message, bytes, nullptr), UsageError);
    EXPECT_THROW((void)group.receive({.peer = 0, .count = -1}, {}, nullptr), UsageError);
    EXPECT_THROW((void)group.send({.peer = 1}, {}, nullptr), UsageError);
  });
}

}  // namespace
}  // namespace lockstep
