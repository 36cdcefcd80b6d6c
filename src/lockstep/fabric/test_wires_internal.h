// For tests. The ranks of groups in one thread, each with a network of its own: messages wait in
// the order of their posts, per pair of ranks, until the test delivers them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/fabric/network_group_internal.h"

namespace lockstep {

struct WireMessage {
  std::uint64_t end = 0;
  Bytes bytes;
};

class WireNetwork final : public Network {
 public:
  explicit WireNetwork(int size) : to(static_cast<std::size_t>(size)) {}

  [[nodiscard]] std::uint64_t open(NetworkEnd& end) override {
    ends.push_back(&end);
    return ends.size() - 1;
  }
  void close(std::uint64_t /*end*/) noexcept override {}
  void post(int peer, std::uint64_t end, std::span<const std::byte> message) override {
    to[static_cast<std::size_t>(peer)].push_back({end, {message.begin(), message.end()}});
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

  std::vector<NetworkEnd*> ends;
  std::vector<std::deque<WireMessage>> to;  // by rank
};

// The part of each rank of a host.
class WireMemory final : public RegisteredMemory {
 public:
  using Parts = std::vector<std::vector<std::uint64_t>>;
  WireMemory(std::shared_ptr<Parts> parts, std::size_t own)
      : parts_(std::move(parts)), own_(static_cast<int>(own)) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override { return part(own_); }
  [[nodiscard]] std::span<std::byte> part(int rank) const noexcept override {
    return std::as_writable_bytes(std::span((*parts_)[static_cast<std::size_t>(rank)]));
  }

 private:
  std::shared_ptr<Parts> parts_;
  int own_;
};

class Wires {
 public:
  /// The host of each rank. The ranks of a host share memory.
  explicit Wires(std::vector<int> hosts) : hosts_(std::move(hosts)) {
    for (int rank = 0; rank < size(); ++rank) {
      networks_.push_back(std::make_shared<WireNetwork>(size()));
    }
  }

  [[nodiscard]] int size() const { return static_cast<int>(hosts_.size()); }
  [[nodiscard]] WireNetwork& network(int rank) const {
    return *networks_[static_cast<std::size_t>(rank)];
  }

  /// A group of all ranks, by rank.
  [[nodiscard]] std::vector<std::shared_ptr<NetworkGroup>> make_group() {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) ranks.push_back(rank);
    std::vector<std::shared_ptr<NetworkGroup>> group;
    std::vector<std::uint64_t> ends;
    for (int rank = 0; rank < size(); ++rank) {
      group.push_back(std::make_shared<NetworkGroup>(networks_[static_cast<std::size_t>(rank)],
                                                     rank, ranks, ToAll::direct, hosts_));
      ends.push_back(group.back()->number());
    }
    const auto bytes = HostHeaders::bytes_per_rank(kMaxInlineMessageBytes);
    std::vector<std::shared_ptr<WireMemory::Parts>> memory(hosts_.size());
    for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
      group[rank]->set_ends(ends);
      auto& parts = memory[static_cast<std::size_t>(hosts_[rank])];
      if (!parts) parts = std::make_shared<WireMemory::Parts>();
      parts->emplace_back(bytes / sizeof(std::uint64_t));
      if (!group[rank]->combines_headers()) continue;
      group[rank]->share_headers(std::make_shared<WireMemory>(parts, parts->size() - 1));
    }
    return group;
  }

  /// Delivers the first message from one rank to another. Returns whether it was valid.
  bool deliver(int from, int to) {
    auto& wire = network(from).to[static_cast<std::size_t>(to)];
    const auto message = std::move(wire.front());
    wire.pop_front();
    return network(to).ends[message.end]->receive(from, message.bytes, {});
  }
  [[nodiscard]] bool has_messages(int from, int to) const {
    return !network(from).to[static_cast<std::size_t>(to)].empty();
  }
  /// Returns the number of messages.
  std::size_t deliver_all() {
    std::size_t count = 0;
    for (int from = 0; from < size(); ++from) {
      for (int to = 0; to < size(); ++to) {
        for (; has_messages(from, to); ++count) EXPECT_TRUE(deliver(from, to));
      }
    }
    return count;
  }

 private:
  std::vector<int> hosts_;
  std::vector<std::shared_ptr<WireNetwork>> networks_;
};

/// Enters call `number`, which is recognized by its weight.
inline std::int64_t weight_of(int rank, std::uint64_t number) {
  return static_cast<std::int64_t>(1000 * number) + rank;
}
inline void enter(NetworkGroup& group, std::uint64_t number, const Call& call = {},
                  InlineInput input_of = nullptr) {
  auto& record = group.own_record(number);
  record.number = number;
  record.weight = weight_of(group.rank(), number);
  record.descriptor = descriptor_of(call);
  group.set_next_input(call, input_of);
  group.enter(number, 77 * number);
}

/// What `group` knows that `rank` has entered.
inline std::uint64_t entered(const NetworkGroup& group, int rank) {
  return group.counters().value(rank, Condition::Of::entered);
}

}  // namespace lockstep
