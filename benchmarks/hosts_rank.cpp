// One rank of hosts_benchmark: all-reduces between emulated hosts, or a plain stream between two
// processes.
//   hosts_rank ANSWER KIND SECONDS BYTES…
// KIND is chosen (the backend that lockstep chooses), flat (every rank by TCP), unchecked (by TCP
// without checksums), encrypted (by TCP), or raw: ranks 0 and 1 send each other BYTES at the same
// time, through one connection. Rank 0 writes {"cases": [{"cold": [seconds]}]}, the maximum over
// the ranks of each call, as the peers of `lockstep bench comm` do.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/backend_choice.h"
#include "lockstep/fabric/group.h"
#include "lockstep/launch/init.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/tcp/connect.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

constexpr int kMostCalls = 5000;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void run(Group& group, const Call& call) { group.wait(*group.start(call, nullptr)); }

void reduce_max(Group& group, std::vector<double>& values) {
  const auto bytes = std::as_writable_bytes(std::span(values));
  run(group, {.kind = Collective::all_reduce,
              .dtype = DType::float64,
              .op = ReduceOp::max,
              .count = static_cast<std::int64_t>(values.size()),
              .input = bytes,
              .output = bytes});
}

// Moves `bytes` both ways at the same time.
void exchange(int socket, std::span<std::byte> out, std::span<std::byte> in) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < out.size() || received < in.size()) {
    bool has_moved = false;
    if (sent < out.size()) {
      const auto count = ::send(socket, out.data() + sent, out.size() - sent, MSG_DONTWAIT);
      if (count > 0) sent += static_cast<std::size_t>(count);
      has_moved = count > 0;
    }
    if (received < in.size()) {
      const auto count = ::recv(socket, in.data() + received, in.size() - received, MSG_DONTWAIT);
      if (count == 0) throw SystemError("the other rank has closed the stream", 0);
      if (count > 0) received += static_cast<std::size_t>(count);
      has_moved = has_moved || count > 0;
    }
    if (has_moved) continue;
    pollfd wanted{socket, static_cast<short>(POLLIN | (sent < out.size() ? POLLOUT : 0)), 0};
    (void)::poll(&wanted, 1, 100);
  }
}

// A connection to the other rank, at a port that hosts_benchmark leaves free.
int plain_connection(const World& world) {
  constexpr const char* kPort = "29999";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto address = world.address_of(0);
  if (::getaddrinfo(address.c_str(), kPort, &hints, &found) != 0) {
    throw SystemError("cannot resolve " + address, 0);
  }
  int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (world.rank() == 0) {
    const int on = 1;
    (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(socket, found->ai_addr, found->ai_addrlen) != 0 || ::listen(socket, 1) != 0) {
      throw SystemError("cannot listen", errno);
    }
    const int accepted = ::accept(socket, nullptr, nullptr);
    ::close(socket);
    socket = accepted;
  } else {
    while (::connect(socket, found->ai_addr, found->ai_addrlen) != 0) {
      ::close(socket);
      ::usleep(10'000);
      socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
  }
  ::freeaddrinfo(found);
  return socket;
}

std::shared_ptr<Group> group_of(const World& world, const std::string& kind) {
  if (kind == "unchecked") return make_group(world, {}, connect_by_tcp({.checks_data = false}));
  if (kind == "encrypted") return make_group(world, {}, connect_by_tcp({.encrypts_data = true}));
  BackendOptions backend;
  if (kind == "flat") backend.backend = BackendKind::tcp;
  return make_group(world, {}, backend);
}

template <typename Call>
std::vector<double> time_calls(Group& group, double seconds, const Call& call) {
  std::vector<double> warm_up;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    call();
    warm_up.push_back(seconds_since(begin));
  }
  std::vector<double> calls{std::clamp(seconds / warm_up.back(), 10.0, double{kMostCalls})};
  reduce_max(group, calls);
  std::vector<double> times;
  for (int i = 0; i < static_cast<int>(calls.front()); ++i) {
    const auto begin = Clock::now();
    call();
    times.push_back(seconds_since(begin));
  }
  reduce_max(group, times);
  return times;
}

void measure(const std::string& answer, const std::string& kind, double seconds,
             const std::vector<std::size_t>& sizes) {
  const auto world = init();
  const auto group = group_of(world, kind);
  const int stream = kind == "raw" ? plain_connection(world) : -1;
  std::vector<std::string> cases;
  for (const auto bytes : sizes) {
    const auto memory = group->allocate(2 * bytes);
    const auto first = memory->bytes().first(bytes);
    const auto second = memory->bytes().subspan(bytes);
    const auto times = time_calls(*group, seconds, [&] {
      if (stream >= 0) return exchange(stream, first, second);
      run(*group, {.kind = Collective::all_reduce,
                   .dtype = DType::float32,
                   .count = static_cast<std::int64_t>(bytes / 4),
                   .input = first,
                   .output = first});
    });
    cases.push_back(fmt::format("{{\"cold\":[{}]}}", fmt::join(times, ",")));
  }
  if (world.rank() == 0) {
    std::ofstream(answer) << fmt::format("{{\"about\":\"lockstep {}\",\"cases\":[{}]}}",
                                         group->kind(), fmt::join(cases, ","));
  }
  run(*group, {.kind = Collective::barrier});
  if (stream >= 0) ::close(stream);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 4) {
    std::fprintf(stderr, "usage: hosts_rank ANSWER KIND SECONDS BYTES...\n");
    return 2;
  }
  try {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 3; i < words.size(); ++i) sizes.push_back(std::stoull(words[i]));
    measure(words[0], words[1], std::stod(words[2]), sizes);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
