// For tests of this room. Runs one body on every rank of a group, for each engine there is and each
// way to be a rank: what a new engine adds to EngineKind goes through every test that uses this.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/fabric/shm_engine.h"
#include "lockstep/fabric/test_world_internal.h"
#include "lockstep/fabric/thread_exchange_internal.h"
#include "lockstep/testing/processes.h"
#include "lockstep/testing/threads.h"

namespace lockstep {

enum class EngineKind { shm };

enum class Ranks {
  threads,  // of one process that share a mapping: what the thread sanitizer understands
  apart,    // threads of one process that each map the memory for themselves
  processes,
};

// gtest prints parameters by this.
inline void PrintTo(Ranks ranks, std::ostream* out) {
  *out << (ranks == Ranks::threads ? "threads"
           : ranks == Ranks::apart ? "threads mapped apart"
                                   : "processes");
}
inline void PrintTo(EngineKind, std::ostream* out) { *out << "shm"; }

struct GroupSetting {
  EngineKind engine = EngineKind::shm;
  Ranks ranks = Ranks::threads;
  int size = 1;
  // Small, so that small spans go through every recipe.
  EngineOptions options = {
      .timeout = std::chrono::seconds(30), .inline_bytes = 1024, .one_shot_bytes = 256};
  std::chrono::milliseconds limit{240'000};
};

using GroupBody = std::function<void(Engine&)>;

inline std::shared_ptr<Engine> make_engine(EngineKind kind, const World& world,
                                           const EngineOptions& options) {
  switch (kind) {
    case EngineKind::shm:
      return make_shm_engine(world, options);
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
          body(*make_engine(setting.engine, world, setting.options));
          self.barrier(self.deadline());  // rank 0 serves the store that the others say goodbye to
        },
        {.limit = setting.limit});
    return;
  }
  const auto memory = std::make_shared<ThreadMemory>();
  const auto point = MeetingPoint::of_threads();
  const auto server = setting.ranks == Ranks::apart ? point.serve() : nullptr;
  testing::run_ranks_as_threads(
      setting.size,
      [&](Rank& self) {
        if (!server) {
          body(*thread_engine(memory, self.rank(), self.size(), setting.options));
          return;
        }
        const auto world = point.join(self.rank(), self.size());
        body(*make_engine(setting.engine, world, setting.options));
      },
      {.limit = setting.limit});
}

// Tests of every engine, way and number of ranks: TEST_P(GroupTest, …) and
// INSTANTIATE_TEST_SUITE_P(…, GroupTest, ::testing::Combine(kEngines, kWays, ::testing::Range(…))).
class GroupTest : public ::testing::TestWithParam<std::tuple<EngineKind, Ranks, int>> {
 protected:
  [[nodiscard]] static GroupSetting setting() {
    GroupSetting setting;
    std::tie(setting.engine, setting.ranks, setting.size) = GetParam();
    return setting;
  }
};
inline const auto kEngines = ::testing::Values(EngineKind::shm);

// Starts a call and waits for it.
inline void run(Engine& engine, const Call& call) { engine.wait(*engine.start(call, nullptr)); }

}  // namespace lockstep
