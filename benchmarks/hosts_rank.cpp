// One rank of hosts_benchmark: all-reduces between emulated hosts, or a plain stream between two
// processes.
//   hosts_rank ANSWER KIND SECONDS BYTES…
// KIND is chosen (the backend that lockstep chooses), flat (every rank by TCP), unchecked (by TCP
// without checksums), encrypted (by TCP), stripes-S-T (by TCP, S connections per pair of ranks,
// whose bytes T threads move), or raw: ranks 0 and 1 send each other BYTES at the same time,
// through one connection. Rank 0 writes {"cases": [{"cold": [seconds]}]}, the maximum over the
// ranks of each call, as the peers of `lockstep bench comm` do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
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
#include "plain_stream.h"

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

// Moves all bytes both ways at the same time.
void exchange(int socket, PlainExchange exchange) {
  while (true) {
    move_some(socket, exchange, std::numeric_limits<std::size_t>::max());
    if (exchange.is_done()) return;
    wait_to_move(socket, exchange);
  }
}

std::shared_ptr<Group> group_of(const World& world, const std::string& kind) {
  if (kind == "unchecked") return make_group(world, {}, connect_by_tcp({.checks_data = false}));
  if (kind == "encrypted") return make_group(world, {}, connect_by_tcp({.encrypts_data = true}));
  TcpOptions striped;
  if (std::sscanf(kind.c_str(), "stripes-%d-%d", &striped.stripes.emplace(),
                  &striped.stripe_threads.emplace()) == 2) {
    return make_group(world, {}, connect_by_tcp(striped));
  }
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
  FileDescriptor stream;
  if (kind == "raw") stream = connect_plainly(world);
  std::vector<std::string> cases;
  for (const auto bytes : sizes) {
    const auto memory = group->allocate(2 * bytes);
    const auto first = memory->bytes().first(bytes);
    const auto second = memory->bytes().subspan(bytes);
    const auto times = time_calls(*group, seconds, [&] {
      if (stream) return exchange(stream.number(), {first, second});
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
