// What a rank knows of the processes of its host. Ranks are processes that are bound to processors,
// as the launcher binds them.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <memory>
#include <vector>

#include "lockstep/fabric/network_planes.h"
#include "lockstep/machine/cpu_topology.h"

namespace lockstep {
namespace {

void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(processor), &set);
  if (::sched_setaffinity(0, sizeof(set), &set) != 0) ::_exit(1);
}

// A process that is bound to one processor.
class BoundProcess {
 public:
  explicit BoundProcess(int processor) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      bind_to(processor);
      (void)!::write(pipe[1], "", 1);
      while (true) ::pause();
    }
    char is_bound = 0;
    EXPECT_EQ(::read(pipe[0], &is_bound, 1), 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  BoundProcess(const BoundProcess&) = delete;
  BoundProcess& operator=(const BoundProcess&) = delete;
  ~BoundProcess() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  [[nodiscard]] ProcessIdentity identity() const { return ProcessIdentity::of(process_); }

 private:
  pid_t process_ = 0;
};

// Whether rank 0, this process, shares cores if ranks with these processes are on these hosts.
bool shares_cores(const std::vector<ProcessIdentity>& processes, const std::vector<int>& hosts) {
  Membership membership;
  membership.hosts = hosts;
  membership.registry = std::make_shared<GroupRegistry>();
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    membership.global_ranks.push_back(static_cast<int>(rank));
    membership.addresses.emplace_back("127.0.0.1");
  }
  NetworkPlanes::Facts facts;
  add_processes(facts, membership, processes);
  return facts.shares_cores;
}

TEST(NetworkFacts, RanksShareCoresIfMoreOfThemThanCoresMayUseThose) {
  const auto processors = allowed_processors();
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  bind_to(processors.front());
  const auto own = ProcessIdentity::of(::getpid());
  const BoundProcess same(processors.front());
  const BoundProcess other(processors.back());
  EXPECT_FALSE(shares_cores({own}, {0}));
  EXPECT_TRUE(shares_cores({own, same.identity()}, {0, 0}));
  EXPECT_FALSE(shares_cores({own, same.identity()}, {0, 1})) << "of another host";
  if (processors.size() > 1) {
    EXPECT_FALSE(shares_cores({own, other.identity()}, {0, 0})) << "each has its own core";
  }
  EXPECT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace lockstep
