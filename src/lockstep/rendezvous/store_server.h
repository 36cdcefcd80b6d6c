// The server of a job's store: one thread that answers every Store of the job. It runs in the
// launcher, or in rank 0 under someone else's launcher.
//
// Who does not prove to know the job's secret is never answered more than the handshake (net's
// handshake.h), and can neither use up the server's memory or descriptors nor disturb members:
// unproven connections are few, each has a limit of time, and one of them, by chance, makes way for
// the next: one that has said nothing before one that has begun its handshake. So a member gets in
// during a flood, too. A member that does not read is dropped after a while and holds up nobody.
#pragma once

#include <chrono>
#include <cstddef>
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
  std::size_t max_pending = 128;                  // connections that have not said who they are
  std::chrono::milliseconds pending_limit{5000};  // to prove itself and say who it is
  std::chrono::milliseconds stalled_reader_limit{60'000};  // without taking one byte of its replies
  std::size_t max_stored_bytes = std::size_t{1} << 30;     // keys and values together
};

class StoreServer {
 public:
  /// Serves what connects to `listener` from here on. Throws SystemError when the thread or its
  /// descriptors cannot be made, UsageError for a job name longer than kMaxJobBytes.
  StoreServer(Listener listener, const Secret& secret, HandshakeContext context,
              const StoreServerOptions& options = {});
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  /// Ends all connections; Stores notice that the server is gone.
  ~StoreServer();

  /// Where Stores connect to. Throws UsageError when the listener is a Unix socket.
  [[nodiscard]] Endpoint endpoint() const;
  /// For messages.
  [[nodiscard]] const std::string& where() const noexcept;
  /// Whether anybody has ever joined. Safe from any thread.
  [[nodiscard]] bool has_had_members() const noexcept;

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  std::jthread thread_;
};

}  // namespace lockstep
