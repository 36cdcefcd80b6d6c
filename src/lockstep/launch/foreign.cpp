#include "lockstep/launch/foreign.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/launch/job.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/socket.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Launchers that do not say how many nodes there are say at least where rank 0 is.
bool is_one_host(const Placement& placement) {
  if (placement.num_nodes) return *placement.num_nodes == 1;
  if (placement.local_size) return *placement.local_size == placement.size;
  return placement.master && is_loopback(placement.master->host);
}

// The porch: where ranks of one host ask rank 0 for the secret.
std::string porch_name(const Placement& placement) {
  return fmt::format("lockstep-{}-{}-{}", ::getuid(), placement.round, placement.job);
}
std::string store_name(const Placement& placement) { return porch_name(placement) + "-store"; }

// Hands the secret to `askers` processes of this user; strangers get nothing and are not counted.
void hand_out(Listener& porch, const Secret& secret, int askers, Deadline deadline) {
  const auto descriptor = secret.to_descriptor();
  while (askers > 0) {
    auto asker = porch.accept(deadline);
    if (asker.peer_user() != ::getuid()) continue;
    try {
      asker.send_descriptor(descriptor.number(), deadline);
      --askers;
    } catch (const SystemError&) {  // it died; whoever waits for it will say so
    }
  }
}

Secret ask_for_secret(const std::string& porch, Deadline deadline) {
  for (;;) {
    try {
      auto door = Socket::connect_unix(porch, deadline);
      if (door.peer_user() != ::getuid()) {
        throw UsageError(
            fmt::format("user {} listens on the Unix socket {} where rank 0 of this job should: "
                        "end that process",
                        door.peer_user(), porch));
      }
      return Secret::from_descriptor(door.receive_descriptor(deadline).number());
    } catch (const SystemError& error) {
      // Rank 0 may not have started yet. An abstract name cannot be waited for, only tried again.
      if (deadline.expired()) {
        throw PeerError(0, fmt::format("rank 0 did not come in time: {}", error.what()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

World meet_on_one_host(const Placement& placement, Deadline deadline) {
  const HandshakeContext context{placement.job, placement.round};
  const Member self{MemberKind::rank, placement.rank};
  if (placement.rank > 0) {
    const auto secret = ask_for_secret(porch_name(placement), deadline);
    return meet(Store::connect_unix(store_name(placement), secret, context, self, deadline),
                placement, deadline);
  }
  const auto secret = Secret::random();
  auto server =
      std::make_shared<StoreServer>(Listener::unix_socket(store_name(placement)), secret, context);
  auto porch = Listener::unix_socket(porch_name(placement));
  const std::jthread host([&] {
    try {
      hand_out(porch, secret, placement.size - 1, deadline);
    } catch (const Error&) {  // meet() reports who did not come
    }
  });
  auto world = meet(Store::connect_unix(store_name(placement), secret, context, self, deadline),
                    placement, deadline);
  world.keep(std::move(server));
  return world;
}

Endpoint meeting_place(const Placement& placement, const Environment& environment) {
  if (const auto named = environment.find("LOCKSTEP_RENDEZVOUS")) return Endpoint::parse(*named);
  if (!placement.master) {
    throw UsageError(fmt::format(
        "{} placed {} ranks on several hosts but names no address to meet at: give every rank "
        "LOCKSTEP_RENDEZVOUS=HOST:PORT, HOST being rank 0's (mpirun -x LOCKSTEP_RENDEZVOUS=…)",
        to_string(placement.source), placement.size));
  }
  auto place = *placement.master;
  if (placement.source == PlacementSource::torchrun)
    ++place.port;  // its own store listens at MASTER_PORT
  return place;
}

World meet_on_several_hosts(const Placement& placement, const Environment& environment,
                            Deadline deadline) {
  const auto place = meeting_place(placement, environment);
  const auto secret = Secret::create_or_read_file(default_secret_file(environment));
  const HandshakeContext context{placement.job, placement.round};
  std::shared_ptr<StoreServer> server;
  if (placement.rank == 0) {
    server = std::make_shared<StoreServer>(Listener::tcp(place.host, place.port), secret, context);
  }
  auto world =
      meet(Store::connect(place, secret, context, {MemberKind::rank, placement.rank}, deadline),
           placement, deadline);
  if (server) world.keep(std::move(server));
  return world;
}

}  // namespace

World meet_under_foreign_launcher(const Placement& placement, const Environment& environment,
                                  Deadline deadline) {
  if (placement.size == 1) return World::alone(placement);
  return is_one_host(placement) ? meet_on_one_host(placement, deadline)
                                : meet_on_several_hosts(placement, environment, deadline);
}

}  // namespace lockstep
