// How much later a member joins the rendezvous while another process, limited to one processor,
// opens connections without a word: rendezvous_benchmark [connections per second] [joins]. On a
// busy machine, run it under `chrt -r 5`: otherwise the flood gets no whole processor.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "benchmarks/bars.h"
#include "lockstep/rendezvous/store.h"
#include "lockstep/rendezvous/store_server.h"

namespace {

using Clock = std::chrono::steady_clock;
using lockstep::Deadline;
using std::chrono_literals::operator""s;

constexpr std::size_t kOpen = 600;  // connections that the flood keeps: more than may be pending

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Limits this process to the last of its processors.
void use_one_processor() {
  cpu_set_t all;
  ::sched_getaffinity(0, sizeof all, &all);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = CPU_SETSIZE - 1; CPU_COUNT(&one) == 0; --processor) {
    if (CPU_ISSET(processor, &all)) CPU_SET(processor, &one);
  }
  ::sched_setaffinity(0, sizeof one, &one);
}

// Opens `rate` connections per second, as far as one processor can, and counts them. Does not wait
// for them: the server must refuse, accept or forget them.
[[noreturn]] void flood(std::uint16_t port, double rate, std::atomic<std::uint64_t>& count) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  use_one_processor();
  sockaddr_in server{};
  server.sin_family = AF_INET;
  server.sin_port = htons(port);
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::array<int, kOpen> open{};
  open.fill(-1);
  const auto begin = Clock::now();
  for (std::uint64_t number = 0;; ++number) {
    int& place = open[number % kOpen];
    if (place >= 0) {  // without this option the connection would occupy a port for a minute
      const linger reset{1, 0};
      ::setsockopt(place, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      ::close(place);
    }
    place = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const auto* address = reinterpret_cast<const sockaddr*>(&server);
    if (::connect(place, address, sizeof server) == 0 || errno == EINPROGRESS) {
      count.fetch_add(1, std::memory_order_relaxed);
    }
    while (static_cast<double>(number) > rate * seconds(Clock::now() - begin)) ::sched_yield();
  }
}

// The seconds in which each of `joins` members joins and stores a value.
std::vector<double> time_joins(const lockstep::StoreServer& server, const lockstep::Secret& secret,
                               int joins) {
  std::vector<double> times;
  for (int rank = 0; rank < joins; ++rank) {
    const auto begin = Clock::now();
    auto member =
        lockstep::Store::connect(server.endpoint(), secret, {"flood", 0},
                                 {lockstep::MemberKind::rank, rank}, Deadline::after(60s));
    member.set("k", "v", Deadline::after(60s));
    times.push_back(seconds(Clock::now() - begin));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::sort(times.begin(), times.end());
  return times;
}

void print(const char* when, const std::vector<double>& times) {
  fmt::print("{:18} median {:6.1f} ms, slowest {:6.1f} ms of {} joins\n", when,
             1e3 * times[times.size() / 2], 1e3 * times.back(), times.size());
}

}  // namespace

int main(int argc, char** argv) {
  const double rate = argc > 1 ? std::atof(argv[1]) : 50'000;
  const int joins = argc > 2 ? std::atoi(argv[2]) : 50;
  const auto secret = lockstep::Secret::random();
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 1;
  auto& count = *new (page) std::atomic<std::uint64_t>(0);
  auto listener = lockstep::Listener::tcp("127.0.0.1");
  const auto port = listener.endpoint().port;
  const pid_t flooder = ::fork();  // before the server's thread starts
  if (flooder == 0) {
    ::raise(SIGSTOP);
    flood(port, rate, count);
  }
  const lockstep::StoreServer server(std::move(listener), secret, {"flood", 0});
  ::waitpid(flooder, nullptr, WUNTRACED);
  const auto quiet = time_joins(server, secret, joins);
  print("without a flood:", quiet);
  ::kill(flooder, SIGCONT);
  std::this_thread::sleep_for(1s);
  const auto begin = Clock::now();
  const auto before = count.load();
  const auto flooded = time_joins(server, secret, joins);
  const auto reached = static_cast<double>(count.load() - before) / seconds(Clock::now() - begin);
  ::kill(flooder, SIGKILL);
  ::waitpid(flooder, nullptr, 0);
  print("during the flood:", flooded);
  const auto later = flooded.back() - quiet[quiet.size() / 2];
  lockstep::print_bar(fmt::format("slowest join during {:.0f} connections per second", reached),
                      fmt::format("{:.2f} s later", later), "<= 1 s later", later <= 1);
}
