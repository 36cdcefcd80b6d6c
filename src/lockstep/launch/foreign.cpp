#include "lockstep/launch/foreign.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/crash_handler.h"
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

// Launchers that do not give the number of nodes give at least the address of rank 0.
bool is_one_host(const Placement& placement) {
  if (placement.num_nodes) return *placement.num_nodes == 1;
  if (placement.local_size) return *placement.local_size == placement.size;
  return placement.master && is_loopback(placement.master->host);
}

// MPICH's launcher gives no job id. The process at the other end of the socket that it passed to
// this rank is the same for all its ranks on a host and different for other jobs; without that
// socket, the parent process.
std::string mpich_job(const Environment& environment) {
  ucred launcher{};
  socklen_t size = sizeof launcher;
  const auto socket = environment.find_integer("PMI_FD");
  const bool tells = socket && ::getsockopt(static_cast<int>(*socket), SOL_SOCKET, SO_PEERCRED,
                                            &launcher, &size) == 0;
  return fmt::format("mpich-{}", tells && launcher.pid > 0 ? launcher.pid : ::getppid());
}

// The Unix socket at which ranks of one host get the secret from rank 0.
std::string secret_socket_name(const Placement& placement) {
  return fmt::format("lockstep-{}-{}-{}", ::getuid(), placement.round, placement.job);
}
std::string store_name(const Placement& placement) {
  return secret_socket_name(placement) + "-store";
}

// Listens on the Unix socket `name` of rank 0. If the name is in use, the error names the process
// and its user.
Listener listen_as_rank_0(const std::string& name) {
  try {
    return Listener::unix_socket(name);
  } catch (const SystemError& error) {
    if (error.error_number() != EADDRINUSE) throw;
  }
  auto holder = Socket::connect_unix(name, Deadline::after(std::chrono::seconds(1)));
  const auto user = holder.peer_user();
  throw UsageError(fmt::format(
      "the Unix socket {} that rank 0 of this job needs is in use by process {} of {}: {}", name,
      holder.peer_process(), user == ::getuid() ? "this user" : fmt::format("user {}", user),
      user == ::getuid() ? "rank 0 of another run with the same job id; end it, or give this job "
                           "another MASTER_PORT"
                         : "ask that user to end it, or give this job another MASTER_PORT"));
}

// Sends the secret to processes of this user that connect, until `stop` is readable. Processes of
// other users get nothing.
void serve_secret(Listener& listener, const Secret& secret, int stop, Deadline deadline) {
  const auto descriptor = secret.to_descriptor();
  for (;;) {
    std::array<pollfd, 2> waits{{{listener.number(), POLLIN, 0}, {stop, POLLIN, 0}}};
    const int count = ::poll(waits.data(), waits.size(), deadline.poll_milliseconds());
    if ((count < 0 && errno != EINTR) || deadline.expired() || waits[1].revents != 0) return;
    auto client = count > 0 ? listener.try_accept() : std::nullopt;
    if (!client || client->peer_user() != ::getuid()) continue;
    try {
      client->send_descriptor(descriptor.number(), deadline);
    } catch (const SystemError&) {  // the client has ended; meet() reports its rank
    }
  }
}

Secret request_secret(const std::string& name, Deadline deadline) {
  for (;;) {
    try {
      auto socket = Socket::connect_unix(name, deadline);
      if (socket.peer_user() != ::getuid()) {
        throw UsageError(fmt::format(
            "user {} listens on the Unix socket {}, which rank 0 of this job needs: end "
            "that process",
            socket.peer_user(), name));
      }
      return Secret::from_descriptor(socket.receive_descriptor(deadline).number());
    } catch (const SystemError& error) {
      // Rank 0 may not have started yet. The kernel offers no wait for an abstract name, only
      // retries.
      if (deadline.expired()) {
        throw PeerError(0, fmt::format("rank 0 did not arrive by the deadline: {}", error.what()));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

World meet_on_one_host(const Placement& placement, Deadline deadline) {
  const HandshakeContext context{placement.job, placement.round};
  const Member self{MemberKind::rank, placement.rank};
  if (placement.rank > 0) {
    const auto secret = request_secret(secret_socket_name(placement), deadline);
    return meet(Store::connect_unix(store_name(placement), secret, context, self, deadline),
                placement, deadline);
  }
  const auto secret = Secret::random();
  auto server =
      std::make_shared<StoreServer>(listen_as_rank_0(store_name(placement)), secret, context);
  auto listener = listen_as_rank_0(secret_socket_name(placement));
  const FileDescriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) throw SystemError("cannot create an eventfd", errno);
  // The thread ends when meet() ends, with success or not: if it continued to wait, a failed
  // meet() would return only at the deadline.
  const std::jthread host([&](const std::stop_token& ended) {
    const AlternateSignalStack stack;
    const std::stop_callback wake(ended, [&] { ::eventfd_write(stop.number(), 1); });
    try {
      serve_secret(listener, secret, stop.number(), deadline);
    } catch (const Error&) {  // meet() reports the missing ranks
    }
  });
  auto world = meet(Store::connect_unix(store_name(placement), secret, context, self, deadline),
                    placement, deadline);
  world.keep(std::move(server));
  return world;
}

Endpoint meeting_endpoint(const Placement& placement, const Environment& environment) {
  if (const auto named = environment.find("LOCKSTEP_RENDEZVOUS")) return Endpoint::parse(*named);
  if (!placement.master) {
    throw UsageError(fmt::format(
        "{} placed {} ranks on several hosts but gives no address to meet at: set "
        "LOCKSTEP_RENDEZVOUS=HOST:PORT for every rank, where HOST is that of rank 0 (mpirun -x "
        "LOCKSTEP_RENDEZVOUS=…)",
        to_string(placement.source), placement.size));
  }
  auto endpoint = *placement.master;
  if (placement.source == PlacementSource::torchrun)
    ++endpoint.port;  // its own store listens at MASTER_PORT
  return endpoint;
}

World meet_on_several_hosts(const Placement& placement, const Environment& environment,
                            Deadline deadline) {
  const auto endpoint = meeting_endpoint(placement, environment);
  const auto secret = Secret::create_or_read_file(default_secret_file(environment));
  const HandshakeContext context{placement.job, placement.round};
  std::shared_ptr<StoreServer> server;
  if (placement.rank == 0) {
    server =
        std::make_shared<StoreServer>(Listener::tcp(endpoint.host, endpoint.port), secret, context);
  }
  auto world =
      meet(Store::connect(endpoint, secret, context, {MemberKind::rank, placement.rank}, deadline),
           placement, deadline);
  if (server) world.keep(std::move(server));
  return world;
}

}  // namespace

World meet_under_foreign_launcher(const Placement& placement, const Environment& environment,
                                  Deadline deadline) {
  if (placement.size == 1) return World::alone(placement);
  if (!is_one_host(placement)) return meet_on_several_hosts(placement, environment, deadline);
  auto here = placement;
  if (here.source == PlacementSource::mpich) here.job = mpich_job(environment);
  return meet_on_one_host(here, deadline);
}

}  // namespace lockstep
