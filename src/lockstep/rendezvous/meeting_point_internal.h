// For tests of this room. Where the ranks of a test meet, whether they are threads of one process
// or processes: a Unix socket named after the process that they have in common, and a secret that
// all of them know.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

inline Secret test_secret(unsigned char fill = 7) {
  std::array<std::byte, Secret::kBytes> bytes{};
  bytes.fill(std::byte{fill});
  return Secret::from_bytes(bytes);
}

inline HandshakeContext test_context() { return {"test", 1}; }

inline Member rank_member(int rank) { return {MemberKind::rank, rank}; }

struct MeetingPoint {
  std::string name;

  [[nodiscard]] Store join(int rank) const {
    return Store::connect_unix(name, test_secret(), test_context(), rank_member(rank), soon());
  }
  [[nodiscard]] StoreServer serve(const StoreServerOptions& options = {}) const {
    return {Listener::unix_socket(name), test_secret(), test_context(), options};
  }
};

// For ranks as threads: called once, before the run.
inline MeetingPoint meeting_point_of_threads() {
  static int count = 0;
  return {"lockstep-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count)};
}

// For ranks as processes: called by each.
inline MeetingPoint meeting_point_of_processes() {
  return {"lockstep-test-of-" + std::to_string(::getppid())};
}

}  // namespace lockstep
