// The program of the launcher tests. Prints its world in one line, then acts on its arguments:
//   print_world                 prints and ends
//   print_world exit CODE RANK  rank RANK ends with CODE, the others wait for it
//   print_world crash RANK      rank RANK dereferences a null pointer
//   print_world throw RANK      rank RANK throws an exception that is not caught
//   print_world wait            waits until a signal such as SIGTERM ends it
//   print_world ignore RANK     rank RANK ignores SIGTERM, the others end by it
//   print_world fail-once RANK  rank RANK ends with 3 in the first round only
//   print_world leave RANK      rank RANK ends with 0 while the others are in a barrier
//   print_world lose BYTES      all ranks fill registered memory, then SIGKILL ends the last one;
//   the others print how much later their collective failed, and how much private memory that took
//   print_world reduce          the ranks all-reduce their numbers and print the sum
//   print_world flood BYTES     writes that many bytes of numbered lines
//   print_world steps STEP      makes steps of 10 ms with a barrier each (on one host), and stays
//   in step STEP, in backward at bucket 4
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/group.h"
#include "lockstep/launch/init.h"
#include "lockstep/trace/rank_page.h"

namespace {

// Not inlined, so that the stack names it; not sanitized, so that the signal ends the process.
[[gnu::noinline, gnu::no_sanitize("undefined")]] void dereference_null() {
  volatile int* volatile nowhere = nullptr;  // volatile twice: compilers would optimize either away
  *nowhere = 1;
}

[[noreturn]] void wait_to_be_ended() {
  std::this_thread::sleep_for(
      std::chrono::minutes(2));  // a test that leaves this process behind counts it
  std::_Exit(9);
}

void flood(int rank, long bytes) {
  long written = 0;
  for (long line = 0; written < bytes; ++line) {
    written +=
        std::printf("rank %d line %09ld of many, to fill the pipe of a slow reader\n", rank, line);
  }
}

void make_steps(const lockstep::World& world, long last) {
  const auto group = world.num_hosts() == 1 ? lockstep::make_group(world) : nullptr;
  auto& page = world.page();
  for (long step = 1;; ++step) {
    page.step(step);
    if (step == last) break;
    page.enter(lockstep::StepPart::forward);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    page.enter(lockstep::StepPart::exposed, 0);
    if (!group) continue;
    group->wait(
        *group->start({.kind = lockstep::Collective::barrier, .name = "end of step"}, nullptr));
  }
  page.enter(lockstep::StepPart::backward);
  page.enter_bucket(4);
}

long own_anonymous_kilobytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::atol(line.c_str() + 8);
  }
  return 0;
}

void lose_the_last_rank(const lockstep::World& world, long bytes) {
  const auto now_ns = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  const auto soon = [] { return lockstep::Deadline::after(std::chrono::seconds(30)); };
  const auto group = lockstep::make_group(world);
  const auto memory = group->allocate(static_cast<std::size_t>(bytes));
  std::fill(memory->bytes().begin(), memory->bytes().end(), std::byte{1});
  group->wait(*group->start({.kind = lockstep::Collective::barrier}, nullptr));
  if (world.rank() == world.size() - 1) {
    world.store().set("end", std::to_string(now_ns()), soon());
    std::raise(SIGKILL);
  }
  const long before = own_anonymous_kilobytes();
  try {
    group->wait(*group->start({.kind = lockstep::Collective::all_reduce,
                               .dtype = lockstep::DType::int32,
                               .count = bytes / 4,
                               .input = memory->bytes(),
                               .output = memory->bytes()},
                              nullptr));
  } catch (const lockstep::PeerError&) {
    const auto failed = now_ns();
    const auto more = own_anonymous_kilobytes() - before;
    const auto end = std::stoll(world.store().get_text("end", soon()));
    std::printf("rank %d failed %ld ms later with %ld kB more\n", world.rank(),
                static_cast<long>((failed - end) / 1'000'000), more);
  }
}

void act(const lockstep::World& world, int num_arguments, char** arguments) {
  const std::string_view what = num_arguments > 1 ? arguments[1] : "";
  const auto number = [&](int i) { return i < num_arguments ? std::atol(arguments[i]) : -1; };
  const bool chosen = world.rank() == number(what == "exit" ? 3 : 2);
  if (what == "exit") {
    if (chosen) std::exit(static_cast<int>(number(2)));
    wait_to_be_ended();
  } else if (what == "crash") {
    if (chosen) dereference_null();
    wait_to_be_ended();
  } else if (what == "throw") {
    if (chosen) throw std::runtime_error("the shapes do not fit");
    wait_to_be_ended();
  } else if (what == "wait") {
    wait_to_be_ended();
  } else if (what == "ignore") {
    if (chosen) std::signal(SIGTERM, SIG_IGN);
    std::printf("ready\n");
    std::fflush(stdout);
    wait_to_be_ended();
  } else if (what == "fail-once") {
    if (chosen &&
        world.store().add("never there again", 1,
                          lockstep::Deadline::after(std::chrono::seconds(5))) == 1 &&
        lockstep::Environment::of_process().find_integer("TORCHELASTIC_RESTART_COUNT") == 0) {
      std::exit(3);
    }
  } else if (what == "leave") {
    const auto group = lockstep::make_group(world);
    if (chosen) return;
    group->wait(*group->start({.kind = lockstep::Collective::barrier}, nullptr));
  } else if (what == "lose") {
    lose_the_last_rank(world, number(2));
  } else if (what == "reduce") {
    const auto group = lockstep::make_group(world);
    const std::int32_t own = world.rank();
    std::int32_t sum = 0;
    group->wait(*group->start({.kind = lockstep::Collective::all_reduce,
                               .dtype = lockstep::DType::int32,
                               .count = 1,
                               .input = std::as_bytes(std::span(&own, 1)),
                               .output = std::as_writable_bytes(std::span(&sum, 1))},
                              nullptr));
    std::printf("sum %d\n", sum);
  } else if (what == "steps") {
    make_steps(world, number(2));
    wait_to_be_ended();
  } else if (what == "flood") {
    flood(world.rank(), number(2));
  }
}

}  // namespace

int main(int num_arguments, char** arguments) {
  try {
    const auto environment = lockstep::Environment::of_process();
    const std::chrono::seconds limit(environment.find_integer("PRINT_WORLD_TIMEOUT").value_or(30));
    const auto world = lockstep::init({.timeout = limit});
    std::string hosts;
    for (int rank = 0; rank < world.size(); ++rank) hosts += std::to_string(world.host_of(rank));
    std::printf("world rank %d of %d, local %d of %d, node %d of %d, hosts %s\n", world.rank(),
                world.size(), world.local_rank(), world.local_size(), world.node(),
                world.num_nodes(), hosts.c_str());
    std::fflush(stdout);
    act(world, num_arguments, arguments);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "print_world: %s\n", error.what());
    return 1;
  }
  return 0;
}
