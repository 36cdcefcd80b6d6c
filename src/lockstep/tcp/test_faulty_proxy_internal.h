// For tests. A TCP proxy between two ranks that damages one of their connections at a given byte.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/socket.h"
#include "lockstep/testing/soon.h"

namespace lockstep {

struct Fault {
  enum class Kind { none, flip, reset, silence, tap };  // tap: no damage, the bytes are kept
  Kind kind = Kind::none;
  int connection = 0;  // 0: of messages, from 1 on: of data
  bool to_server = true;
  std::size_t at = 0;  // byte of the direction
};

class FaultyProxy {
 public:
  FaultyProxy(Endpoint target, const Fault& fault)
      : target_(std::move(target)),
        fault_(fault),
        listener_(Listener::tcp("127.0.0.1")),
        thread_([this](const std::stop_token& stop) { accept(stop); }) {}

  [[nodiscard]] Endpoint endpoint() const { return listener_.endpoint(); }
  [[nodiscard]] bool has_struck() const { return has_struck_; }
  /// What a tap has seen.
  [[nodiscard]] std::vector<std::byte> tapped() const {
    const std::lock_guard lock(mutex_);
    return tapped_;
  }

 private:
  struct Pair {
    Socket client;
    Socket server;
    std::atomic<bool> is_cut = false;
    Pair(Socket of_client, Socket of_server)
        : client(std::move(of_client)), server(std::move(of_server)) {}
  };

  void accept(const std::stop_token& stop) {
    std::list<std::jthread> pumps;
    for (int connection = 0; !stop.stop_requested();) {
      pollfd ready{listener_.number(), POLLIN, 0};
      if (::poll(&ready, 1, 5) <= 0) continue;
      auto client = listener_.try_accept();
      if (!client) continue;
      auto pair =
          std::make_shared<Pair>(std::move(*client), Socket::connect(target_, testing::soon()));
      for (const bool to_server : {true, false}) {
        pumps.emplace_back([this, pair, to_server, connection](const std::stop_token& stop_pump) {
          pump(*pair, to_server, connection, stop_pump);
        });
      }
      ++connection;
    }
  }

  void pump(Pair& pair, bool to_server, int connection, const std::stop_token& stop) {
    auto& from = to_server ? pair.client : pair.server;
    auto& to = to_server ? pair.server : pair.client;
    const bool is_faulty = fault_.kind != Fault::Kind::none && connection == fault_.connection &&
                           to_server == fault_.to_server;
    std::array<std::byte, 16U << 10> buffer;
    try {
      for (std::size_t passed = 0; !stop.stop_requested() && !pair.is_cut;) {
        pollfd ready{from.number(), POLLIN, 0};
        if (::poll(&ready, 1, 5) <= 0) continue;
        const auto count = from.try_receive(buffer);
        if (!count) continue;
        if (*count == 0) break;
        auto bytes = std::span(buffer).first(*count);
        const bool strikes = is_faulty && fault_.at < passed + bytes.size();
        if (strikes && fault_.kind == Fault::Kind::reset) {
          has_struck_ = true;
          const linger at_once{1, 0};
          for (const int number : {from.number(), to.number()}) {
            (void)::setsockopt(number, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
          }
          break;
        }
        if (strikes && fault_.kind == Fault::Kind::silence) {
          has_struck_ = true;
          passed += bytes.size();
          continue;  // read and dropped from here on
        }
        if (strikes && fault_.at >= passed && fault_.kind == Fault::Kind::flip) {
          has_struck_ = true;
          bytes[fault_.at - passed] ^= std::byte{0x10};
        }
        if (fault_.kind == Fault::Kind::tap && is_faulty) {
          const std::lock_guard lock(mutex_);
          tapped_.insert(tapped_.end(), bytes.begin(), bytes.end());
        }
        passed += bytes.size();
        to.send_all(bytes, testing::soon());
      }
    } catch (const Error&) {
      // One side has closed: so does the other.
    }
    pair.is_cut = true;
  }

  const Endpoint target_;
  const Fault fault_;
  Listener listener_;
  std::atomic<bool> has_struck_ = false;
  mutable std::mutex mutex_;
  std::vector<std::byte> tapped_;  // mutex_
  std::jthread thread_;            // last
};

}  // namespace lockstep
