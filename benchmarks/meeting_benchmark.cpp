// How long the ranks of a large job take to meet and to exchange the addresses of a group, and what
// the store's server sends meanwhile: meeting_benchmark [ranks [hosts [bytes]]]. The ranks are
// threads of this process, so that only the store and its protocol are measured; they share the
// processors with the server. Hosts are identities: each proves for itself which ranks share its
// memory. Exits with 1 if 1,000 ranks miss a bar; with the word bytes, only if they miss that of
// the bytes, which does not depend on the processors.
#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "benchmarks/bars.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/store_addresses.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"
#include "lockstep/rendezvous/world.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace lockstep;

// Each rank has a connection and, for the proof of its host, up to three descriptors more.
void allow_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What backend tcp publishes (tcp/wire.h), and the first of several ranks of a host beside it a
// socket's name.
std::string address_of(int rank, int host, bool has_socket) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank));
  const auto started = 1'000'000 + 7919LL * host;  // of all ranks of a host at the same time
  return fmt::format(
      "10.77.{}.{}:{} {:016x} 0 {} {}|{}", host / 250, host % 250, 32768 + random() % 28000,
      random(), 4000 + rank, started,
      has_socket ? fmt::format("lockstep-group-{:016x}{:016x}", random(), random()) : "");
}

int number_in(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

int main(int num_arguments, char** arguments) {
  const int size = num_arguments > 1 ? number_in(arguments[1]) : 1000;
  const int num_hosts = num_arguments > 2 ? number_in(arguments[2]) : 1;
  const bool only_bytes = num_arguments > 3 && std::string_view(arguments[3]) == "bytes";
  if (size < 2 || num_hosts < 1 || num_hosts > size) return 2;
  allow_descriptors();
  const auto secret = Secret::random();
  const HandshakeContext context{"meeting", 1};
  const StoreServer server(Listener::tcp("127.0.0.1"), secret, context);
  const auto host_of = [&](int rank) { return rank * num_hosts / size; };
  const auto own_address = [&](int rank) {
    const bool is_first = rank == 0 || host_of(rank - 1) != host_of(rank);
    const bool is_alone = is_first && (rank == size - 1 || host_of(rank + 1) != host_of(rank));
    return address_of(rank, host_of(rank), is_first && !is_alone);
  };
  std::atomic<int> num_failed = 0;
  std::atomic<double> meeting_seconds = 0;
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto deadline = Deadline::after(std::chrono::seconds(120));
        try {
          Placement placement;
          placement.rank = rank;
          placement.size = size;
          placement.source = PlacementSource::plain;
          const auto world = meet(Store::connect(server.endpoint(), secret, context,
                                                 {MemberKind::rank, rank}, deadline),
                                  placement, deadline, fmt::format("host {}", host_of(rank)));
          meeting_seconds = seconds();  // of the last one
          StoreAddressExchange exchange(world, "group", deadline);
          exchange.exchange(own_address(rank));
          const bool is_right = exchange.of(size - 1) == own_address(size - 1);
          if (world.num_hosts() != num_hosts || !is_right) ++num_failed;
          // No rank leaves while others read.
          world.store().barrier("end", all_ranks(size), deadline);
        } catch (const Error& error) {
          if (++num_failed == 1) fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        }
      });
    }
  }
  const auto all_seconds = seconds();
  const auto megabytes = static_cast<double>(server.bytes_sent()) / 1e6;
  fmt::print(
      "{} ranks on {} host{} met in {:.2f} s and knew all addresses after {:.2f} s; the store "
      "answered {} requests with {:.2f} MB\n",
      size, num_hosts, num_hosts == 1 ? "" : "s", meeting_seconds.load(), all_seconds,
      server.num_requests(), megabytes);
  if (num_failed > 0) {
    fmt::print(stderr, "{} of {} ranks failed\n", num_failed.load(), size);
    return EXIT_FAILURE;
  }
  const bool has_bar = size == 1000;
  const bool is_in_time = all_seconds <= 3;
  const bool is_small = megabytes <= 40;
  print_bar(fmt::format("{} ranks meet and exchange addresses, hosts: {}", size, num_hosts),
            fmt::format("{:.2f} s", all_seconds), has_bar ? "<= 3 s" : "", is_in_time);
  print_bar("sent by the store meanwhile", fmt::format("{:.1f} MB", megabytes),
            has_bar ? "<= 40 MB" : "", is_small);
  const bool is_met = !has_bar || (is_small && (is_in_time || only_bytes));
  return is_met ? EXIT_SUCCESS : EXIT_FAILURE;
}
