// The order of messages to one rank, with a network that only records what is posted.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/fabric/network_data_plane_internal.h"

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
  }
  void expect(int, std::uint64_t, const TransferKey&, std::span<std::byte>, Word&) override {}
  void send(int, std::uint64_t, std::uint64_t, const TransferKey&, std::uint64_t,
            std::span<const std::byte>, Word&) override {}
  void forget(std::uint64_t, std::uint64_t) noexcept override {}
  void forget_all(std::uint64_t) noexcept override {}
  void poll() override {}
  void wait(Deadline) override {}
  [[nodiscard]] bool is_lost(int) const noexcept override { return false; }
  [[nodiscard]] std::string loss_of(int) const override { return {}; }

  void answer(int from, std::uint64_t number) {
    NetworkMessage answer{.kind = NetworkMessage::Kind::answer, .number = number};
    answer.accepted = true;
    EXPECT_TRUE(end_->receive(from, encode(answer), {}));
  }

  std::vector<std::uint64_t> offers;  // in the order of their posts

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

}  // namespace
}  // namespace lockstep
