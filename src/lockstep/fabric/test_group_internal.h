// For tests. Runs one function on every rank of a group, for each transport, with ranks as threads
// or processes. A new value of TransportKind runs through every test that uses this.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/fabric/group.h"
#include "lockstep/fabric/test_plain_transport_internal.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/shm/connect.h"
#include "lockstep/shm/test_thread_memory_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

enum class TransportKind {
  shm,
  plain,  // for tests only: frames over sockets
};

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
  *out << (kind == TransportKind::shm ? "shm" : "plain");
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
};

using GroupBody = std::function<void(Group&)>;

inline std::shared_ptr<Group> make_test_group(TransportKind kind, const World& world,
                                              const SuiteOptions& options) {
  switch (kind) {
    case TransportKind::shm:
      return make_group(world, options.group(), connect_by_shm(options.shm()));
    case TransportKind::plain:
      return make_group(world, options.group(), connect_by_plain_sockets);
  }
  return nullptr;
}

inline void run_group(const GroupSetting& setting, const GroupBody& body) {
  using testing::Rank;
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
      setting.ranks == Ranks::threads && setting.transport == TransportKind::shm;
  const auto server = share_memory ? nullptr : point.serve();
  testing::run_ranks_as_threads(
      setting.size,
      [&](Rank& self) {
        if (!server) {
          body(*thread_group(memory, self.rank(), self.size(), setting.options.group(),
                             setting.options.shm()));
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
inline const auto kTransports = ::testing::Values(TransportKind::shm, TransportKind::plain);

// Tests that create their own groups, once per transport.
class TransportTest : public ::testing::TestWithParam<TransportKind> {};

// Starts a call and waits for it.
inline void run(Group& group, const Call& call) { group.wait(*group.start(call, nullptr)); }

}  // namespace lockstep
