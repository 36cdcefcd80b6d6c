// What the kernel has counted for the data connections and for the thread. A file of its own:
// <linux/tcp.h>, which has the newer fields of tcp_info, and <netinet/tcp.h> define the same names.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/base/thread_time.h"
#include "lockstep/tcp/connect.h"
#include "lockstep/tcp/network_internal.h"

namespace lockstep {
namespace {

std::optional<LinkCount> try_count(int peer, int descriptor) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  const bool is_read = ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_rwnd_limited) + sizeof(__u64);
  if (!is_read || size < kNeeded) return std::nullopt;  // Linux before 4.10
  const auto busy = info.tcpi_busy_time - std::min(info.tcpi_busy_time, info.tcpi_rwnd_limited);
  return LinkCount{.peer = peer,
                   .bytes = static_cast<double>(info.tcpi_bytes_acked),
                   .busy_seconds = 1e-6 * static_cast<double>(busy)};
}

}  // namespace

std::vector<LinkCount> TcpNetwork::counts() const {
  const Lock lock(mutex_);
  std::vector<LinkCount> counts;
  for (const auto& [rank, peer] : peers_) {
    if (!peer.link || !peer.link->is_up() || peer.link->is_lost()) continue;
    LinkCount all{.peer = rank};
    bool is_counted = false;
    for (int channel = 1; channel < peer.link->num_channels(); ++channel) {
      const auto count = try_count(rank, peer.link->descriptor(channel));
      if (!count) continue;
      is_counted = true;
      all.bytes += count->bytes;
      all.busy_seconds = std::max(all.busy_seconds, count->busy_seconds);
    }
    if (is_counted) counts.push_back(all);
  }
  return counts;
}

double TcpNetwork::thread_seconds() noexcept {
  return processor_seconds_of(thread_.native_handle()) + threads_.seconds();
}

std::vector<LinkCount> link_counts(const std::shared_ptr<void>& network) {
  if (!network) return {};
  return std::static_pointer_cast<TcpNetwork>(network)->counts();
}

double network_thread_seconds(const std::shared_ptr<void>& network) {
  return network ? std::static_pointer_cast<TcpNetwork>(network)->thread_seconds() : 0;
}

}  // namespace lockstep
