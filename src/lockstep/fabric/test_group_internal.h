// For tests. Runs one function on every rank of a group, for each transport, with ranks as threads
// or processes. A new value of TransportKind runs through every test that uses this.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/fabric/group.h"
#include "lockstep/fabric/test_plain_transport_internal.h"
#include "lockstep/gpu/test_device_suite_internal.h"
#include "lockstep/gpu/watcher.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/shm/connect.h"
#include "lockstep/shm/test_thread_memory_internal.h"
#include "lockstep/tcp/connect.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

enum class TransportKind {
  shm,
  plain,   // for tests only: frames over sockets
  tcp,     // on loopback, with several stripes
  hosts,   // hierarchical: shm, and tcp, with one stripe, between up to three "hosts"; relays
  ipc,     // shm, and GPU memory of a device double
  staged,  // likewise
  nccl,    // likewise, with a device per rank and a double of NCCL
};
inline bool is_on_device(TransportKind kind) {
  return kind == TransportKind::ipc || kind == TransportKind::staged || kind == TransportKind::nccl;
}

enum class Ranks {
  threads,  // threads of one process that share a mapping, as the thread sanitizer requires
  apart,    // threads of one process that each have their own mapping
  processes,
};

// gtest prints parameters with this function.
inline void PrintTo(Ranks ranks, std::ostream* out) {
  *out << (ranks == Ranks::threads ? "threads"
           : ranks == Ranks::apart ? "threads mapped apart"
                                   : "processes");
}
inline void PrintTo(TransportKind kind, std::ostream* out) {
  constexpr std::array kNames{"shm", "plain", "tcp", "hosts", "ipc", "staged", "nccl"};
  *out << kNames.at(static_cast<std::size_t>(kind));
}

// The options of a group and of its transport.
struct SuiteOptions {
  std::string name = "world";
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds stall_report{10'000};
  std::size_t inline_bytes = 16U << 10;
  std::optional<std::size_t> one_shot_bytes = {};

  [[nodiscard]] GroupOptions group() const {
    return {.name = name, .timeout = timeout, .stall_report = stall_report};
  }
  [[nodiscard]] ShmOptions shm() const {
    return {.inline_bytes = inline_bytes, .one_shot_bytes = one_shot_bytes};
  }
};

struct GroupSetting {
  TransportKind transport = TransportKind::shm;
  Ranks ranks = Ranks::threads;
  int size = 1;
  // Small thresholds, so that small spans use every recipe.
  SuiteOptions options = {
      .timeout = std::chrono::seconds(30), .inline_bytes = 1024, .one_shot_bytes = 256};
  std::chrono::milliseconds limit{240'000};
  std::uint64_t seed = 1;  // of the device double's schedule
  std::size_t lag = 0;     // likewise
};

using GroupBody = std::function<void(Group&)>;

/// Ranks 0 and 1, 2 and 3, … are on the same of three "hosts", so that hosts have several ranks
/// from a size of 2 on, and ranks that are not consecutive from 7 on.
inline int fake_host_of(int global_rank) { return global_rank / 2 % 3; }
/// Small thresholds, so that small spans are not inline, larger ones take several rounds, and
/// groups of more than four ranks relay.
inline Connect connect_by_hosts(const SuiteOptions& options) {
  return connect_by_tcp({.inline_bytes = options.inline_bytes / 8,
                         .within_host = connect_by_shm(options.shm()),
                         .stage_bytes = 16U << 10,
                         .most_direct = 4,
                         .host_of = fake_host_of});
}

inline std::shared_ptr<Group> make_test_group(TransportKind kind, const World& world,
                                              const SuiteOptions& options) {
  switch (kind) {
    case TransportKind::shm:
      return make_group(world, options.group(), connect_by_shm(options.shm()));
    case TransportKind::plain:
      return make_group(world, options.group(), connect_by_plain_sockets);
    case TransportKind::tcp:
      return make_group(world, options.group(),
                        connect_by_tcp({.inline_bytes = options.inline_bytes,
                                        .stripes = 3,
                                        .stripe_threads = world.rank() % 2 == 0 ? 3 : 1}));
    case TransportKind::hosts:
      return make_group(world, options.group(), connect_by_hosts(options));
    case TransportKind::ipc:
    case TransportKind::staged:
    case TransportKind::nccl:
      return make_group(world, options.group(),
                        SuiteDevice::connect(connect_by_shm(options.shm())));
  }
  return nullptr;
}

/// The number of calls with which a group connects its devices. They come before the first call of
/// a body.
inline std::uint64_t connect_device(Group& group) {
  if (!SuiteDevice::is_set()) return 0;
  const SuiteMemory memory(1);
  const auto first = group.start(on_device(group, {.kind = Collective::all_reduce,
                                                   .count = 1,
                                                   .input = memory.bytes(),
                                                   .output = memory.bytes()}),
                                 nullptr);
  finish(group, *first);
  return static_cast<const CallOperation&>(*first).number - 1;
}
/// The words for call `number` of a group, where call 1 creates it: "call 3".
inline std::atomic<std::uint64_t> calls_of_connect = 0;
inline std::string nth_call(std::uint64_t number) {
  return "call " + std::to_string(number + calls_of_connect.load());
}

/// Sets the device double of a transport, and the watcher that products use too. `seed` and `lag`
/// are those of the double's schedule.
inline void set_suite_device(TransportKind kind, std::uint64_t seed = 1, std::size_t lag = 0) {
  if (!is_on_device(kind)) return SuiteDevice::set(std::nullopt);
  const auto backend = kind == TransportKind::ipc    ? BackendKind::ipc
                       : kind == TransportKind::nccl ? BackendKind::nccl
                                                     : BackendKind::staged;
  constexpr int kMostRanks = 8;  // NCCL needs a device per rank
  SuiteDevice::set(
      SuiteDevice::Setting{.backend = backend,
                           .device = {.seed = seed,
                                      .num_devices = kind == TransportKind::nccl ? kMostRanks : 1,
                                      .lag = lag},
                           .watcher = &watcher_of_process});
}

inline void run_group(const GroupSetting& setting, const GroupBody& own_body) {
  using testing::Rank;
  set_suite_device(setting.transport, setting.seed, setting.lag);
  const GroupBody body = [&](Group& group) {
    calls_of_connect = connect_device(group);
    own_body(group);
  };
  if (setting.ranks == Ranks::processes) {
    (void)testing::run_ranks_as_processes(
        setting.size,
        [&](Rank& self) {
          const auto world = world_of_processes(self.rank(), self.size());
          body(*make_test_group(setting.transport, world, setting.options));
          self.barrier(self.deadline());  // rank 0 serves the store, which the others still use
        },
        {.limit = setting.limit});
    return;
  }
  const auto memory = std::make_shared<ThreadMemory>();
  const auto point = MeetingPoint::of_threads();
  const bool share_memory =
      setting.ranks == Ranks::threads &&
      (setting.transport == TransportKind::shm || is_on_device(setting.transport));
  const auto server = share_memory ? nullptr : point.serve();
  testing::run_ranks_as_threads(
      setting.size,
      [&](Rank& self) {
        if (!server) {
          const auto wrap = is_on_device(setting.transport) ? &SuiteDevice::connect : nullptr;
          body(*thread_group(memory, self.rank(), self.size(), setting.options.group(),
                             setting.options.shm(), wrap));
          return;
        }
        const auto world = point.join(self.rank(), self.size());
        body(*make_test_group(setting.transport, world, setting.options));
      },
      {.limit = setting.limit});
}

// Tests for every transport, kind of ranks and number of ranks: TEST_P(GroupTest, …) and
// INSTANTIATE_TEST_SUITE_P(…, GroupTest, ::testing::Combine(kTransports,
// ::testing::Values(Ranks::…),
// ::testing::Range(…))).
class GroupTest : public ::testing::TestWithParam<std::tuple<TransportKind, Ranks, int>> {
 protected:
  [[nodiscard]] static GroupSetting setting() {
    GroupSetting setting;
    std::tie(setting.transport, setting.ranks, setting.size) = GetParam();
    return setting;
  }
};
inline const auto kTransports = ::testing::Values(TransportKind::shm, TransportKind::plain,
                                                  TransportKind::tcp, TransportKind::hosts);
inline const auto kDeviceTransports =
    ::testing::Values(TransportKind::ipc, TransportKind::staged, TransportKind::nccl);

// Tests that create their own groups, once per transport.
class TransportTest : public ::testing::TestWithParam<TransportKind> {};

// Starts a call and waits for it.
inline void run(Group& group, const Call& call) {
  finish(group, *group.start(on_device(group, call), nullptr));
}

}  // namespace lockstep
