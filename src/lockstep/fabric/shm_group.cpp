// How groups are made: of all ranks of a world, and of parts of a group.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/shm_engine_internal.h"

namespace lockstep {
namespace {

std::shared_ptr<ShmEngine> open_engine(Membership membership,
                                       std::unique_ptr<SegmentExchange> exchange,
                                       const EngineOptions& options) {
  const auto progress = membership.progress;
  auto engine = std::make_shared<ShmEngine>(std::move(membership), std::move(exchange), options);
  if (!engine->one_shot_bytes()) {
    const auto bytes = measure_switch_point(*engine);
    engine->set_one_shot_bytes(bytes);
    progress->set_switch_point(engine->size(), bytes);
  }
  return engine;
}

}  // namespace

void look_again(const Watch& watch) {
  const auto limit = Deadline::after(std::chrono::milliseconds(500));
  while (!limit.expired()) {
    watch();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::shared_ptr<Engine> ShmEngine::split(int color, int key) {
  struct Wish {
    int color = 0;
    int key = 0;
    char door[64] = {};  // where this rank's followers would come to
  };
  Wish own{color, key};
  // Who leads is known only when all have said their wish, so everybody opens a door.
  std::optional<SocketExchange::Door> door;
  if (size() > 1) {
    door = SocketExchange::open();
    LOCKSTEP_ASSERT(door->name.size() < sizeof(own.door), "the name of a door is short");
    std::copy(door->name.begin(), door->name.end(), own.door);
  }
  std::vector<Wish> wishes(static_cast<std::size_t>(size()));
  int number = 0;
  std::uint64_t call_number = 0;
  {
    const Lock lock(mutex_);
    number = splits_++;
    wait_for(*start_call({.kind = Collective::split,
                          .count = sizeof(Wish),
                          .input = std::as_bytes(std::span(&own, 1)),
                          .output = std::as_writable_bytes(std::span(wishes))},
                         nullptr),
             std::nullopt);
    call_number = calls_;
  }
  std::vector<int> members;
  for (int other = 0; other < size(); ++other) {
    if (wishes[static_cast<std::size_t>(other)].color == color) members.push_back(other);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });

  Membership membership = membership_;
  membership.global_ranks.clear();
  for (const int member : members) membership.global_ranks.push_back(global_rank(member));
  membership.rank =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  auto options = options_;
  options.name = fmt::format("{}/{}.{}", options_.name, number, color);
  const auto deadline = Deadline::after(options_.timeout);
  const auto num_members = static_cast<int>(members.size());
  const Watch watch = [&] {
    for (const int member : members) {
      if (member == rank() || !peers_.dead(member)) continue;
      throw PeerError(global_rank(member),
                      fmt::format("rank {} (pid {}) is gone, and others are in call {} {}, which "
                                  "makes group {}",
                                  global_rank(member), peers_.process(member), call_number,
                                  to_string(Collective::split), options.name));
    }
  };
  try {
    std::unique_ptr<SegmentExchange> exchange;
    if (num_members == 1) {
      exchange = SocketExchange::alone();
    } else if (membership.rank == 0) {
      exchange =
          SocketExchange::lead(std::move(*door), *membership_.secret, num_members, deadline, watch);
    } else {
      const auto& leader = wishes[static_cast<std::size_t>(members.front())];
      exchange = SocketExchange::follow(leader.door, *membership_.secret, membership.rank, deadline,
                                        watch);
    }
    return open_engine(std::move(membership), std::move(exchange), options);
  } catch (const SystemError&) {
    look_again(watch);
    throw;
  }
}

std::shared_ptr<Engine> make_shm_engine(const World& world, const EngineOptions& options) {
  Membership membership;
  membership.rank = world.rank();
  membership.global_ranks.resize(static_cast<std::size_t>(world.size()));
  std::iota(membership.global_ranks.begin(), membership.global_ranks.end(), 0);
  membership.progress = world.shared<Progress>();
  membership.run_dir = world.run_dir();
  if (world.size() == 1) {
    return open_engine(std::move(membership), SocketExchange::alone(), options);
  }
  if (world.num_hosts() > 1) {
    std::string hosts;
    for (int host = 0; host < world.num_hosts(); ++host) {
      std::vector<Member> ranks;
      for (int rank = 0; rank < world.size(); ++rank) {
        if (world.host_of(rank) == host) ranks.push_back({MemberKind::rank, rank});
      }
      hosts += fmt::format("{}{} at {}", host > 0 ? "; " : "", to_string(ranks),
                           world.address_of(ranks.front().number));
    }
    throw UsageError(fmt::format(
        "a group of this version is of one host, but the {} ranks are on {} hosts: {}; start all "
        "ranks on one host",
        world.size(), world.num_hosts(), hosts));
  }
  membership.secret = std::make_shared<const Secret>(world.secret().copy());
  auto& store = world.store();
  const auto deadline = Deadline::after(options.timeout);
  const auto prefix = fmt::format("fabric/{}", membership.progress->next_group());
  const Member leader{MemberKind::rank, 0};
  const Watch watch = [&] {
    for (const auto& status : store.members(deadline)) {
      if (status.member.kind != MemberKind::rank || status.state == MemberState::connected)
        continue;
      throw PeerError(status.member.number,
                      fmt::format("{} is gone while group {} is made; its own output says why",
                                  to_string(status.member), options.name));
    }
  };
  try {
    std::unique_ptr<SegmentExchange> exchange;
    if (world.rank() == 0) {
      auto door = SocketExchange::open();
      store.set(prefix + "/door", door.name, deadline);
      store.barrier(prefix, all_ranks(world.size()), deadline);
      exchange =
          SocketExchange::lead(std::move(door), *membership.secret, world.size(), deadline, watch);
    } else {
      store.barrier(prefix, all_ranks(world.size()), deadline);
      const auto where = store.get_text(prefix + "/door", deadline, leader);
      exchange = SocketExchange::follow(where, *membership.secret, world.rank(), deadline, watch);
    }
    return open_engine(std::move(membership), std::move(exchange), options);
  } catch (const SystemError&) {
    look_again(watch);
    throw;
  }
}

}  // namespace lockstep
