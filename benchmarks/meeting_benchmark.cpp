// How long the ranks of a large job take to meet, and what the store's server sends meanwhile:
// meeting_benchmark [ranks]. The ranks are threads of this process, so that only the store and its
// protocol are measured; they share the processors with the server.
#include <fmt/format.h>
#include <sys/resource.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
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

}  // namespace

int main(int num_arguments, char** arguments) {
  int size = 1000;
  if (num_arguments > 1) {
    const std::string_view text = arguments[1];
    std::from_chars(text.data(), text.data() + text.size(), size);
  }
  if (size < 1) return 2;
  allow_descriptors();
  const auto secret = Secret::random();
  const HandshakeContext context{"meeting", 1};
  const StoreServer server(Listener::tcp("127.0.0.1"), secret, context);
  std::atomic<int> num_failed = 0;
  const auto begin = Clock::now();
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
                                  placement, deadline);
          if (world.num_hosts() != 1) ++num_failed;
        } catch (const Error& error) {
          if (++num_failed == 1) fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        }
      });
    }
  }
  const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  fmt::print("{} ranks met in {:.2f} s; the store sent {:.2f} MB\n", size, seconds,
             static_cast<double>(server.bytes_sent()) / 1e6);
  if (num_failed > 0) fmt::print(stderr, "{} of {} ranks failed\n", num_failed.load(), size);
  return num_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
