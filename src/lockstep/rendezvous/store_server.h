// The server of a job's store: one thread that answers every Store of the job. It runs in the
// launcher, or in rank 0 under another launcher.
//
// A peer that does not know the job's secret gets no answer beyond the handshake (handshake.h of
// net), and can neither exhaust the server's memory or descriptors nor disturb members. The number
// of unauthenticated connections is limited, and each has a time limit. Beyond the limit, a random
// one is closed for every new connection: a silent one first, then one that has begun its
// handshake. So a member can join during a flood of connections. A member that does not read its
// replies is dropped after a time limit and delays no other member.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"

namespace lockstep {

struct StoreServerOptions {
  std::size_t max_pending = 128;                           // connections that are not members yet
  std::chrono::milliseconds pending_limit{5000};           // to authenticate and become a member
  std::chrono::milliseconds stalled_reader_limit{60'000};  // without reading a byte of its replies
  std::size_t max_stored_bytes = std::size_t{1} << 30;     // keys and values together
};

class StoreServer {
 public:
  /// Starts to serve connections to `listener`. Throws SystemError when the thread or its
  /// descriptors are not available, UsageError for a job name longer than kMaxJobBytes.
  StoreServer(Listener listener, const Secret& secret, HandshakeContext context,
              const StoreServerOptions& options = {});
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  /// Closes all connections; Stores detect that the server is lost.
  ~StoreServer();

  /// The endpoint for Store::connect. Throws UsageError when the listener is a Unix socket.
  [[nodiscard]] Endpoint endpoint() const;
  /// The address in messages.
  [[nodiscard]] const std::string& where() const noexcept;
  /// Whether any member has ever joined. Thread-safe.
  [[nodiscard]] bool has_had_members() const noexcept;
  /// The bytes of all replies, handshakes and announcements so far. Thread-safe.
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept;
  /// The requests of all members so far. Thread-safe.
  [[nodiscard]] std::uint64_t num_requests() const noexcept;

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  std::jthread thread_;
};

}  // namespace lockstep
