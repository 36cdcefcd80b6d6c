// For tests. A link of rank 0 to a peer whose ends of the connections are in the hands of the test:
// what the peer sends, and the order of the bytes that it receives.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/net/socket.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/tcp/link_internal.h"

namespace lockstep {

class BareLink final : private LinkHandler {
 public:
  explicit BareLink(int num_stripes = 1) : link(1, *this, DataProtection::none) {
    for (int channel = 0; channel <= num_stripes; ++channel) {
      auto [own, theirs] = Socket::pair();
      constexpr int kRoom = 128 << 10;  // less than a frame
      (void)::setsockopt(own.number(), SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof(kRoom));
      theirs_.emplace_back(std::move(theirs));
      (void)link.attach({std::move(own), Sealer(test_secret()), Opener(test_secret())},
                        {.kind = channel == 0 ? ConnectionKind::messages : ConnectionKind::data,
                         .rank = 1,
                         .stripe = std::max(channel - 1, 0),
                         .num_stripes = num_stripes});
    }
  }

  void expect(const TransferKey& key, std::span<std::byte> bytes, Network::Word& received) {
    expected_[key] = {bytes, &received, {}};
  }
  void forget(const TransferKey& key) {
    expected_.erase(key);
    forgotten_.insert(key);
  }

  /// The peer sends these bytes through a stripe, and the link reads them.
  void arrive(int stripe, std::span<const std::byte> bytes) {
    missing_[stripe] -= std::min(missing_[stripe], bytes.size());
    theirs_.at(static_cast<std::size_t>(1 + stripe))->send_all(bytes, soon());
    while (link.receive(1 + stripe)) {
    }
  }
  void arrive(int stripe, const DataHeader& header) {
    arrive(stripe, encode(header));
    missing_[stripe] = header.length;
  }
  /// The bytes of the last frame that have not arrived yet.
  [[nodiscard]] std::size_t missing(int stripe) { return missing_[stripe]; }

  /// The connection ends, and the link notices.
  void end(int channel) {
    theirs_.at(static_cast<std::size_t>(channel)).reset();
    (void)link.receive(channel);
  }

  /// What the link has sent through a connection since the last call.
  [[nodiscard]] std::vector<std::byte> take(int channel) {
    auto& socket = *theirs_.at(static_cast<std::size_t>(channel));
    std::vector<std::byte> taken;
    std::vector<std::byte> buffer(64U << 10);
    while (const auto count = socket.try_receive(buffer)) {
      taken.insert(taken.end(), buffer.begin(),
                   buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    return taken;
  }

 private:
  [[nodiscard]] bool handle_message(int /*peer*/, std::uint64_t /*end*/,
                                    std::span<const std::byte> /*message*/) override {
    return true;
  }
  [[nodiscard]] Destination* find_destination(int /*peer*/, std::uint64_t /*end*/,
                                              const TransferKey& key) override {
    const auto found = expected_.find(key);
    return found == expected_.end() ? nullptr : &found->second;
  }
  void drop_destination(int /*peer*/, std::uint64_t /*end*/, const TransferKey& key) override {
    expected_.erase(key);
  }
  [[nodiscard]] bool may_arrive_late(std::uint64_t /*end*/, const TransferKey& key) const override {
    return forgotten_.contains(key);
  }

  std::map<TransferKey, Destination> expected_;
  std::set<TransferKey> forgotten_;
  std::vector<std::optional<Socket>> theirs_;  // by channel
  std::map<int, std::size_t> missing_;         // by stripe

 public:
  Link link;  // last: uses the others
};

}  // namespace lockstep
