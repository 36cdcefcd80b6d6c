// What a rank sends to another one and in which order, and what it does with input that a faulty
// one has sent, with a network that only records.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/machine/links.h"
#include "lockstep/rendezvous/call_size.h"

namespace lockstep {
namespace {

class RecordingNetwork final : public Network {
 public:
  [[nodiscard]] std::uint64_t open(NetworkEnd& end) override {
    end_ = &end;
    return 0;
  }
  void close(std::uint64_t /*end*/) noexcept override {}
  void post(int /*peer*/, std::uint64_t /*to*/, std::span<const std::byte> message) override {
    const auto decoded = try_decode(message);
    if (decoded && decoded->kind == NetworkMessage::Kind::offer) offers.push_back(decoded->number);
    if (decoded && decoded->kind == NetworkMessage::Kind::waits) waits.push_back(decoded->number);
  }
  void expect(int, std::uint64_t, const TransferKey&, std::span<std::byte> bytes,
              Word& received) override {
    expected.emplace_back(bytes, &received);
  }
  void send(int, std::uint64_t, std::uint64_t, const TransferKey&, std::uint64_t offset,
            std::span<const std::byte> bytes, Word& sent) override {
    sends.emplace_back(offset, bytes.size());
    sent_words.push_back(&sent);
  }
  void forget(std::uint64_t, std::uint64_t) noexcept override {}
  void forget_all(std::uint64_t) noexcept override {}
  [[nodiscard]] bool settles() const noexcept override { return has_thread; }
  void poll() override {}
  void wait(Deadline) override {}
  [[nodiscard]] bool is_lost(int) const noexcept override { return false; }
  [[nodiscard]] std::string loss_of(int) const override { return {}; }

  void answer(int from, std::uint64_t number) {
    NetworkMessage answer{.kind = NetworkMessage::Kind::answer, .number = number};
    answer.accepted = true;
    EXPECT_TRUE(end_->receive(from, encode(answer), {}));
  }

  void enter(int from, const NetworkMessage& entered) {
    EXPECT_TRUE(end_->receive(from, encode(entered), {}));
  }

  // What a background thread does.
  void settle() {
    end_->settle([this](int peer, std::uint64_t to, std::span<const std::byte> message) {
      post(peer, to, message);
    });
  }

  bool has_thread = true;
  std::vector<std::uint64_t> offers;                         // in the order of their posts
  std::vector<std::uint64_t> waits;                          // likewise
  std::vector<std::pair<std::uint64_t, std::size_t>> sends;  // offset and length
  std::vector<Word*> sent_words;                             // of each of these
  std::vector<std::pair<std::span<std::byte>, Word*>> expected;

 private:
  NetworkEnd* end_ = nullptr;
};

TEST(NetworkSends, ALaterMessageDoesNotOvertakeIfAnswersArriveBetweenTwoRecipes) {
  const auto network = std::make_shared<RecordingNetwork>();
  const auto group = std::make_shared<NetworkGroup>(network, 0, std::vector{0, 1});
  group->set_ends({0, 0});
  NetworkDataPlane plane(group, "recorded", {}, std::nullopt);
  const std::vector<std::byte> bytes(8);
  std::vector<std::shared_ptr<MessageOperation>> sends;
  std::vector<std::uint64_t> expected;
  for (std::uint64_t number = 0; number < 18; ++number) {
    sends.push_back(plane.send({.peer = 1, .tag = 1, .count = 8}, bytes));
    sends.back()->recipe.advance();
    expected.push_back(number);
  }
  ASSERT_EQ(network->offers.size(), 16U);  // the others wait for answers
  sends[16]->recipe.advance();
  network->answer(1, 0);
  network->answer(1, 1);
  sends[17]->recipe.advance();
  EXPECT_EQ(network->offers.size(), 16U);
  sends[16]->recipe.advance();
  sends[17]->recipe.advance();
  EXPECT_EQ(network->offers, expected);
}

// What a rank sends of a direct sum between two ranks: the part of the other one, block by block.
std::vector<std::pair<std::uint64_t, std::size_t>> sends_of(std::size_t bytes,
                                                            const NetworkLink& link) {
  const auto network = std::make_shared<RecordingNetwork>();
  const auto group = std::make_shared<NetworkGroup>(network, 0, std::vector{0, 1});
  group->set_ends({0, 0});
  NetworkDataPlane plane(group, "recorded",
                         {.exchange = {.link = link, .algorithm = ExchangeAlgorithm::direct}},
                         std::nullopt);
  std::vector<std::byte> memory(bytes);
  const auto operation = plane.prepare({.kind = Collective::all_reduce,
                                        .dtype = DType::float32,
                                        .count = static_cast<std::int64_t>(bytes / 4),
                                        .input = memory,
                                        .output = memory},
                                       1);
  auto recipe = plane.begin(*operation, /*same_memory=*/false);
  recipe.advance();
  return network->sends;
}

TEST(NetworkSends, DataMoveInTheBlocksOfTheLink) {
  constexpr std::size_t kBytes = 8U << 20;
  for (const auto& link : {NetworkLink{}, NetworkLink{.link_class = LinkClass::nvlink},
                           NetworkLink{.latency = 50e-6, .bandwidth = 1.25e8, .is_measured = true},
                           NetworkLink{.latency = 50e-6, .bandwidth = 1e10, .is_measured = true}}) {
    const auto block = block_bytes(link, kBytes, 4);
    const auto sends = sends_of(kBytes, link);
    ASSERT_EQ(sends.size(), kBytes / 2 / block) << "the part of the other rank";
    for (std::size_t i = 0; i < sends.size(); ++i) {
      EXPECT_EQ(sends[i], std::pair(std::uint64_t{i * block}, block));
    }
  }
}

// Rank 0 is alone on its host and sends its input to the two ranks of the other one, which own a
// part each. It awaits results of the first block when it has sent two more.
TEST(NetworkSends, PartialSumsOfHostsMoveInTheBlocksOfTheLinkToo) {
  constexpr std::size_t kBytes = 24U << 20;
  for (const auto link_class : {LinkClass::ethernet, LinkClass::nvlink}) {
    const NetworkLink link{.link_class = link_class};
    const auto network = std::make_shared<RecordingNetwork>();
    const auto group = std::make_shared<NetworkGroup>(network, 0, std::vector{0, 1, 2});
    group->set_ends({0, 0, 0});
    HostPlanes host;
    host.hosts = {0, 1, 1};
    host.stage_bytes = 3U << 20;
    NetworkDataPlane plane(group, "recorded", {.exchange = {.link = link}}, std::move(host));
    std::vector<std::byte> memory(kBytes);
    const auto operation = plane.prepare({.kind = Collective::all_reduce,
                                          .dtype = DType::float32,
                                          .count = kBytes / 4,
                                          .input = memory,
                                          .output = memory},
                                         1);
    auto recipe = plane.begin(*operation, /*same_memory=*/false);
    recipe.advance();
    const auto block = block_bytes(link, kBytes, 4);
    ASSERT_EQ(network->sends.size(), 6U);
    for (std::size_t i = 0; i < network->sends.size(); ++i) {
      EXPECT_EQ(network->sends[i], std::pair(std::uint64_t{i / 2 * block}, block));
    }
  }
  EXPECT_NE(block_bytes({}, kBytes, 4), block_bytes({.link_class = LinkClass::nvlink}, kBytes, 4));
}

// A frame of 64 KiB of what a rank sends.
struct SentFrame {
  std::size_t begin = 0;  // element
  std::size_t bytes = 0;
  Network::Word* word = nullptr;
};

std::vector<SentFrame> frames_of(const RecordingNetwork& network) {
  constexpr std::size_t kFrameBytes = 64U << 10;
  std::vector<SentFrame> frames;
  for (std::size_t i = 0; i < network.sends.size(); ++i) {
    const auto [offset, length] = network.sends[i];
    for (std::size_t at = 0; at < length; at += kFrameBytes) {
      frames.push_back({(offset + at) / sizeof(float), std::min(kFrameBytes, length - at),
                        network.sent_words[i]});
    }
  }
  return frames;
}

// Several connections send the frames of one transfer in any order.
TEST(NetworkSends, ResultsAreNotWrittenOverInputThatHasNotBeenSent) {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(seed);
    const auto network = std::make_shared<RecordingNetwork>();
    const auto group = std::make_shared<NetworkGroup>(network, 0, std::vector{0, 1});
    group->set_ends({0, 0});
    NetworkDataPlane plane(group, "recorded",
                           {.exchange = {.algorithm = ExchangeAlgorithm::doubling}}, std::nullopt);
    std::vector<float> values(200'003, 1);
    const auto memory = std::as_writable_bytes(std::span(values));
    const auto operation = plane.prepare({.kind = Collective::all_reduce,
                                          .dtype = DType::float32,
                                          .count = static_cast<std::int64_t>(values.size()),
                                          .input = memory,
                                          .output = memory},
                                         1);
    auto recipe = plane.begin(*operation, /*same_memory=*/false);
    recipe.advance();
    ASSERT_EQ(network->expected.size(), 1U);
    const auto [there, received] = network->expected[0];
    const std::vector<float> input_of_peer(values.size(), 2);
    std::memcpy(there.data(), input_of_peer.data(), there.size());
    received->store(there.size());
    auto frames = frames_of(*network);
    ASSERT_GT(frames.size(), 8U);
    std::mt19937_64 random(seed);
    std::shuffle(frames.begin(), frames.end(), random);
    for (std::size_t done = 0; done < frames.size(); ++done) {
      recipe.advance();
      EXPECT_FALSE(recipe.done());
      for (auto at = done; at < frames.size(); ++at) {
        const auto* const first = values.data() + frames[at].begin;
        const auto count = static_cast<std::ptrdiff_t>(frames[at].bytes / sizeof(float));
        ASSERT_EQ(std::count(first, first + count, 1.0F), count) << "after " << done << " frames";
      }
      frames[done].word->fetch_add(frames[done].bytes);
    }
    recipe.advance();
    EXPECT_TRUE(recipe.done());
    EXPECT_EQ(values, std::vector<float>(values.size(), 3));
  }
}

// Of 8 MiB that two hosts exchange by halves: rank 0 computes its inputs as it needs them.
TEST(NetworkSends, InputIsComputedWhileLittleOfItWaitsAndArrivedInputIsCombinedMeanwhile) {
  constexpr std::size_t kCount = 2U << 20;
  constexpr std::size_t kHalf = kCount / 2 * sizeof(float);
  const auto network = std::make_shared<RecordingNetwork>();
  const auto group = std::make_shared<NetworkGroup>(network, 0, std::vector{0, 1});
  group->set_ends({0, 0});
  NetworkCall operation(group);
  std::vector<float> inputs(kCount, 0);
  std::vector<float> outputs(kCount, 0);
  operation.call = {.kind = Collective::all_reduce,
                    .dtype = DType::float32,
                    .count = static_cast<std::int64_t>(kCount),
                    .input = std::as_bytes(std::span(inputs)),
                    .output = std::as_writable_bytes(std::span(outputs))};
  operation.number = 1;
  operation.block_bytes = 256U << 10;
  auto data = whole_data_of(operation);
  std::size_t computed = 0;
  data.prepare = [&](const Part& elements, ExchangeData::Use use) {
    computed += use == ExchangeData::Use::again ? elements.length * sizeof(float) : 0;
    std::fill_n(inputs.data() + elements.begin, elements.length, 1.0F);
    return reinterpret_cast<const std::byte*>(inputs.data() + elements.begin);
  };
  const auto exchange = make_exchange(ExchangeAlgorithm::halving, operation, std::move(data));
  ASSERT_TRUE(exchange->advance());
  EXPECT_EQ(computed, 1U << 20);
  // All input of the other rank arrives before any byte of this one is sent.
  ASSERT_EQ(network->expected.size(), 2U);
  const auto fill = [&](std::size_t i) {
    const auto [there, received] = network->expected[i];
    auto* const values = reinterpret_cast<float*>(there.data());
    std::fill_n(values, there.size() / sizeof(float), i == 0 ? 2.0F : 3.0F);
    received->store(there.size());
  };
  fill(0);
  ASSERT_TRUE(exchange->advance());
  EXPECT_EQ(computed, 1U << 20);
  EXPECT_EQ(std::count(outputs.begin(), outputs.end(), 3.0F), kCount / 2);
  // What has been sent makes room for as much.
  std::size_t next = 0;
  while (computed < kHalf) {
    const auto before = computed;
    ASSERT_LT(next, network->sends.size()) << computed;
    network->sent_words[next]->fetch_add(network->sends[next].second);
    ++next;
    (void)exchange->advance();
    EXPECT_LE(computed - before, network->sends[next - 1].second);
  }
  for (; next < network->sends.size(); ++next) {
    network->sent_words[next]->fetch_add(network->sends[next].second);
  }
  ASSERT_TRUE(exchange->advance()) << "the results of the other rank are missing";
  fill(1);
  EXPECT_FALSE(exchange->advance());
  EXPECT_EQ(computed, kHalf);
  EXPECT_EQ(outputs, std::vector<float>(kCount, 3.0F));
}

// Most waits are short: a message to every rank for each would be most of the messages of a group.
TEST(NetworkSends, OnlyALongWaitIsPublished) {
  const auto network = std::make_shared<RecordingNetwork>();
  NetworkGroup group(network, 0, {0, 1, 2});
  group.set_ends({0, 0, 0});
  const auto settle_until_published = [&](std::size_t count) {
    const auto begin = std::chrono::steady_clock::now();
    const auto limit = Deadline::after(std::chrono::seconds(10));
    while (network->waits.size() < count && !limit.expired()) network->settle();
    return std::chrono::steady_clock::now() - begin;
  };
  group.set_waits_in(1);
  network->settle();
  group.set_waits_in(0);
  network->settle();
  group.set_waits_in(2);
  EXPECT_GE(settle_until_published(2), std::chrono::milliseconds(100));
  EXPECT_EQ(network->waits, (std::vector<std::uint64_t>{2, 2})) << "one message per other rank";
  network->settle();
  EXPECT_EQ(network->waits.size(), 2U);
  group.set_waits_in(0);
  (void)settle_until_published(4);
  EXPECT_EQ(network->waits, (std::vector<std::uint64_t>{2, 2, 0, 0}));
}

TEST(NetworkSends, AWaitIsPublishedAtOnceIfNoThreadWouldDoItLater) {
  const auto network = std::make_shared<RecordingNetwork>();
  network->has_thread = false;
  NetworkGroup group(network, 0, {0, 1});
  group.set_ends({0, 0});
  group.set_waits_in(3);
  group.set_waits_in(3);
  group.set_waits_in(0);
  EXPECT_EQ(network->waits, (std::vector<std::uint64_t>{3, 0}));
}

// The other rank makes the same call, but what it has sent with it is shorter or longer.
TEST(NetworkSends, InputOfAnotherLengthThanThatOfTheCallNamesItsSender) {
  for (const auto kind : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
                          Collective::all_gather, Collective::gather, Collective::all_to_all}) {
    for (const std::size_t bytes : {0, 4, 12, 4096}) {
      const auto network = std::make_shared<RecordingNetwork>();
      const auto group = std::make_shared<NetworkGroup>(network, 0, std::vector{0, 1});
      group->set_ends({0, 0});
      NetworkDataPlane plane(group, "recorded", {}, std::nullopt);
      const Call sizes{.kind = kind, .dtype = DType::float32, .count = 2};
      std::vector<std::byte> input(input_bytes(sizes, 0, 2));
      std::vector<std::byte> output(output_bytes(sizes, 0, 2));
      auto call = sizes;
      call.input = input;
      call.output = output;
      const auto operation = plane.prepare(call, 1);
      const std::vector<std::byte> sent(bytes);
      NetworkMessage entered{.kind = NetworkMessage::Kind::entered, .number = 1};
      entered.bytes = sent;
      network->enter(1, entered);
      EXPECT_THROW((void)plane.begin(*operation, /*same_memory=*/false), PeerError)
          << to_string(kind) << ", " << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace lockstep
