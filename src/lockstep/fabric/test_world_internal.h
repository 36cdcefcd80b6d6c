// For tests of this room. Worlds whose ranks are threads of one process or processes: they meet at
// a Unix socket named after the process they have in common, with a secret that all of them know.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

// Ten times what it takes until all processes of a test have loaded LibTorch on a busy machine.
inline Deadline soon() { return Deadline::after(std::chrono::seconds(120)); }

inline Secret test_secret(unsigned char fill = 7) {
  std::array<std::byte, Secret::kBytes> bytes{};
  bytes.fill(std::byte{fill});
  return Secret::from_bytes(bytes);
}

// Where the ranks of one world meet. One of them, or the test itself, serves.
struct MeetingPoint {
  std::string name;

  // For ranks as threads: called once, before the run.
  [[nodiscard]] static MeetingPoint of_threads() {
    static int count = 0;
    return {"lockstep-fabric-" + std::to_string(::getpid()) + "-" + std::to_string(++count)};
  }
  // For ranks as processes: called by each, with a number for each world they meet in.
  [[nodiscard]] static MeetingPoint of_processes(int number = 0) {
    return {"lockstep-fabric-of-" + std::to_string(::getppid()) + "-" + std::to_string(number)};
  }

  [[nodiscard]] std::shared_ptr<StoreServer> serve() const {
    return std::make_shared<StoreServer>(Listener::unix_socket(name), test_secret(), context(),
                                         StoreServerOptions{});
  }
  [[nodiscard]] World join(int rank, int size, std::optional<std::string> run_dir = {}) const {
    Placement placement;
    placement.rank = rank;
    placement.size = size;
    placement.source = PlacementSource::plain;
    placement.run_dir = std::move(run_dir);
    return meet(
        Store::connect_unix(name, test_secret(), context(), {MemberKind::rank, rank}, soon()),
        placement, soon());
  }

 private:
  [[nodiscard]] static HandshakeContext context() { return {"fabric test", 1}; }
};

// The world of processes, served by its rank 0 for as long as any copy of it lives there.
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
