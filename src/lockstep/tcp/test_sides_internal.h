// For tests. Two networks in one process: a side is a rank with one end.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/tcp/network_internal.h"

namespace lockstep {

using Bytes = std::vector<std::byte>;

class Notebook final : public NetworkEnd {
 public:
  bool receive(int /*peer*/, std::span<const std::byte> message,
               const PostMessage& /*post*/) override {
    const std::lock_guard lock(mutex_);
    messages_.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
    return messages_.back() != "invalid";
  }
  void settle(const PostMessage& /*post*/) override {}
  void lose(int /*peer*/, const std::string& why, const PostMessage& /*post*/) override {
    const std::lock_guard lock(mutex_);
    losses_.push_back(why);
  }
  [[nodiscard]] std::vector<std::string> losses() const {
    const std::lock_guard lock(mutex_);
    return losses_;
  }
  [[nodiscard]] std::vector<std::string> messages() const {
    const std::lock_guard lock(mutex_);
    return messages_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> messages_;
  std::vector<std::string> losses_;
};

// The interfaces are addresses of loopback.
inline std::vector<Listener> listeners(int num_interfaces) {
  std::vector<Listener> all;
  for (int i = 1; i <= num_interfaces; ++i) {
    all.push_back(Listener::tcp("127.0.0." + std::to_string(i)));
  }
  return all;
}

// One rank: its network and one end of it.
struct Side {
  explicit Side(int rank, std::chrono::milliseconds heartbeat = std::chrono::seconds(3),
                const Secret& secret = test_secret(),
                DataProtection protection = DataProtection::checksums, int num_stripes = 1,
                int num_interfaces = 1, int stripe_threads = 1)
      : network(rank, listeners(num_interfaces), secret, std::make_shared<GroupList>(), heartbeat,
                protection, num_stripes),
        end(network.open(notes)) {
    network.allow_threads(stripe_threads);
  }
  ~Side() { network.close(end); }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Notebook notes;
  TcpNetwork network;
  std::uint64_t end;
};

inline void connect(Side& low, Side& high, const std::optional<Endpoint>& through = {}) {
  auto address = low.network.address_of(low.end);
  if (through) address.endpoints = {*through};
  auto other = std::async(std::launch::async, [&] {
    low.network.connect(1, high.network.address_of(high.end), soon(), {});
  });
  high.network.connect(0, address, soon(), {});
  other.get();
}

// Without a caller inside the networks: their threads do the work.
inline bool comes_true(const std::function<bool()>& holds,
                       std::chrono::milliseconds within = std::chrono::seconds(20)) {
  for (const auto limit = Deadline::after(within); !limit.expired();) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return holds();
}

inline std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text));
}

inline Bytes random_bytes(std::size_t count) {
  std::mt19937_64 random(count);
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace lockstep
