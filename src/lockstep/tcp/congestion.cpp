// A file of its own: <linux/tcp.h>, which has the newer fields of tcp_info, and <netinet/tcp.h>
// define the same names.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>

#include "lockstep/tcp/congestion_internal.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kLongestOfOneSite{2};

std::string congestion_control_of(int descriptor) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size() - 1;
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
  return name.data();
}

bool try_set(int descriptor, const std::string& name) {
  return ::setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

bool is_suited(std::string_view preset, std::chrono::microseconds round_trip) noexcept {
  return !preset.starts_with("bbr") || round_trip > kLongestOfOneSite;
}

std::string set_congestion_control(int descriptor) {
  auto preset = congestion_control_of(descriptor);
  if (!is_suited(preset, {})) (void)(try_set(descriptor, "cubic") || try_set(descriptor, "reno"));
  return preset;
}

void settle_congestion_control(int descriptor, const std::string& preset) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  constexpr std::size_t kNeeded = offsetof(tcp_info, tcpi_min_rtt) + sizeof(__u32);
  if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < kNeeded) return;
  if (congestion_control_of(descriptor) == preset) return;
  if (is_suited(preset, std::chrono::microseconds(info.tcpi_min_rtt))) {
    (void)try_set(descriptor, preset);
  }
}

}  // namespace lockstep
