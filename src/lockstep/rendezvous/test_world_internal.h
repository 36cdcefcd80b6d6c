// For tests. The rendezvous of a test's ranks, which are threads of one process or processes: a
// Unix socket with the pid of their common process in its name, and a fixed secret. They meet as
// members of a store, or as a world.
#pragma once

#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/testing/soon.h"

namespace lockstep {

using testing::soon;

inline Secret test_secret(unsigned char fill = 7) {
  std::array<std::byte, Secret::kBytes> bytes{};
  bytes.fill(std::byte{fill});
  return Secret::from_bytes(bytes);
}

inline HandshakeContext test_context() { return {"test", 1}; }

inline Member rank_member(int rank) { return {MemberKind::rank, rank}; }

// The rendezvous of one world. One of its ranks, or the test itself, runs the server.
struct MeetingPoint {
  std::string name;

  // For ranks as threads: call it once, before the run.
  [[nodiscard]] static MeetingPoint of_threads() {
    static int count = 0;
    return {"lockstep-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count)};
  }
  // For ranks as processes: each of them calls it, with a number per world.
  [[nodiscard]] static MeetingPoint of_processes(int number = 0) {
    return {"lockstep-test-of-" + std::to_string(::getppid()) + "-" + std::to_string(number)};
  }

  [[nodiscard]] std::shared_ptr<StoreServer> serve(const StoreServerOptions& options = {}) const {
    return std::make_shared<StoreServer>(Listener::unix_socket(name), test_secret(), test_context(),
                                         options);
  }
  [[nodiscard]] Store connect(int rank) const {
    return Store::connect_unix(name, test_secret(), test_context(), rank_member(rank), soon());
  }
  [[nodiscard]] World join(int rank, int size, std::optional<std::string> run_dir = {}) const {
    Placement placement;
    placement.rank = rank;
    placement.size = size;
    placement.source = PlacementSource::plain;
    placement.run_dir = std::move(run_dir);
    return meet(connect(rank), placement, soon());
  }
};

// The world of ranks that are processes. Rank 0 runs the server while any copy of its World lives.
inline World world_of_processes(int rank, int size, int number = 0,
                                std::optional<std::string> run_dir = {}) {
  const auto point = MeetingPoint::of_processes(number);
  std::shared_ptr<StoreServer> server;
  if (rank == 0) server = point.serve();
  auto world = point.join(rank, size, std::move(run_dir));
  if (server) world.keep(server);
  return world;
}

}  // namespace lockstep
