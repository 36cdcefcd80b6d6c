#include "lockstep/rendezvous/host_clocks.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

constexpr int kRounds = 8;  // the fastest one counts

Member rank_member(int rank) { return {MemberKind::rank, rank}; }

int lowest_rank_of(const World& world, int host) {
  int rank = 0;
  while (world.host_of(rank) != host) ++rank;
  return rank;
}

nanoseconds read_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UsageError(
        fmt::format("rank 0 sent the time \"{}\", expected a number: start all ranks "
                    "with the same version of lockstep",
                    text));
  }
  return nanoseconds(value);
}

// The lowest rank of a host asks rank 0 for its time. Rank 0 read its clock between the two reads
// of this rank, so the offset is known within half of the time that the answer took.
HostClock ask(const World& world, const std::string& prefix, Deadline deadline,
              const ReadClock& clock) {
  auto& store = world.store();
  HostClock best{.error = nanoseconds::max()};
  for (int round = 0; round < kRounds; ++round) {
    const auto key = fmt::format("{}/{}", prefix, round);
    const auto before = clock();
    store.set(key + "/ask", "", deadline);
    const auto answer = read_number(store.get_text(key + "/answer", deadline, rank_member(0)));
    const auto after = clock();
    const auto error = (after - before) / 2 + nanoseconds(1);
    if (error >= best.error) continue;
    best = {.offset = answer - (before + (after - before) / 2), .error = error};
  }
  return best;
}

void answer(const World& world, const std::string& prefix, int asking, Deadline deadline,
            const ReadClock& clock) {
  auto& store = world.store();
  for (int round = 0; round < kRounds; ++round) {
    const auto key = fmt::format("{}/{}", prefix, round);
    (void)store.get(key + "/ask", deadline, rank_member(asking));
    store.set(key + "/answer", std::to_string(clock().count()), deadline);
  }
}

}  // namespace

nanoseconds read_steady_clock() { return std::chrono::steady_clock::now().time_since_epoch(); }

HostClock align_clocks(const World& world, const std::string& name, Deadline deadline,
                       const ReadClock& clock) {
  if (world.num_hosts() == 1) return {};
  const auto prefix_of = [&](int host) { return fmt::format("clocks/{}/{}", name, host); };
  const int own_host = world.host_of(world.rank());
  if (world.rank() == 0) {
    for (int host = 1; host < world.num_hosts(); ++host) {
      answer(world, prefix_of(host), lowest_rank_of(world, host), deadline, clock);
    }
  }
  if (own_host == 0) return {};
  const int lowest = lowest_rank_of(world, own_host);
  const auto key = prefix_of(own_host) + "/offset";
  if (world.rank() != lowest) {
    std::istringstream text(world.store().get_text(key, deadline, rank_member(lowest)));
    std::int64_t offset = 0;
    std::int64_t error = 0;
    text >> offset >> error;
    return {.offset = nanoseconds(offset), .error = nanoseconds(error)};
  }
  const auto measured = ask(world, prefix_of(own_host), deadline, clock);
  world.store().set(key, fmt::format("{} {}", measured.offset.count(), measured.error.count()),
                    deadline);
  return measured;
}

}  // namespace lockstep
