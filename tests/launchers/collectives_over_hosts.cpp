// The program of collectives_over_hosts_test.py. Each rank prints the backend of its group, then:
//   collectives_over_hosts digest   a digest of reductions, of inputs that depend on the rank only
//   collectives_over_hosts forever  sums until an error, which it prints with the time it took
//   collectives_over_hosts idle FILE  ranks of even number wait for a message that none sends; the
//   others call nothing until FILE exists; both print the error as above
//   collectives_over_hosts bytes    what eth0 of the host has sent in all_reduces, and the bytes of
//   the host's plan
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/collectives/backends.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/host_plan.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/launch/init.h"

namespace {

using namespace lockstep;

void run(Group& group, const Call& call) { group.wait(*group.start(call, nullptr)); }

// Values whose sum depends on the order of the additions.
std::vector<std::byte> input_of(int rank, DType dtype, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919U + static_cast<unsigned>(count));
  std::vector<std::byte> bytes(count * bytes_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(static_cast<double>(random()) / 4e9) *
                       (random() % 5 == 0 ? 1000.0F : 1.0F);
    if (dtype == DType::float32) {
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {  // bfloat16: the upper half
      std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const std::byte*>(&value) + 2, 2);
    }
  }
  return bytes;
}

std::uint64_t digest_of_reductions(Group& group) {
  Digest digest;
  std::uint64_t position = 0;
  for (const auto dtype : {DType::float32, DType::bfloat16}) {
    for (const std::size_t count : {5U, 3000U, 100'000U, 1'000'003U}) {
      for (const auto op : {ReduceOp::sum, ReduceOp::average}) {
        auto bytes = input_of(group.rank(), dtype, count);
        run(group, {.kind = Collective::all_reduce,
                    .dtype = dtype,
                    .op = op,
                    .count = static_cast<std::int64_t>(count),
                    .input = bytes,
                    .output = bytes});
        digest.add(position, bytes);
        position += (bytes.size() + 7) / 8 * 8;
      }
    }
  }
  return digest.value();
}

// What the interface eth0 has sent so far.
std::uint64_t bytes_sent() {
  std::ifstream lines("/proc/self/net/dev");
  for (std::string word; lines >> word;) {
    if (word != "eth0:") continue;
    std::uint64_t number = 0;
    for (int column = 0; column < 9; ++column) lines >> number;  // the ninth: bytes transmitted
    return number;
  }
  return 0;
}

void print_bytes(Group& group, const World& world) {
  constexpr int kCalls = 4;
  constexpr std::size_t kBytes = 8U << 20;
  std::vector<int> hosts;
  for (int rank = 0; rank < world.size(); ++rank) hosts.push_back(world.host_of(rank));
  const HostPlan plan(hosts);
  const auto registered = group.allocate(kBytes);
  std::vector<std::byte> ordinary(kBytes);
  for (const auto dtype : {DType::float32, DType::bfloat16}) {
    for (const auto bytes : {registered->bytes(), std::span(ordinary)}) {
      const auto count = kBytes / bytes_of(dtype);
      run(group, {.kind = Collective::barrier});
      const auto before = bytes_sent();
      run(group, {.kind = Collective::barrier});
      for (int i = 0; i < kCalls; ++i) {
        run(group, {.kind = Collective::all_reduce,
                    .dtype = dtype,
                    .count = static_cast<std::int64_t>(count),
                    .input = bytes,
                    .output = bytes});
      }
      run(group, {.kind = Collective::barrier});
      const auto planned =
          kCalls * plan.bytes_sent_by(plan.host_of(world.rank()), count, bytes_of(dtype), 4);
      std::printf("sent %.4f of the plan\n",
                  static_cast<double>(bytes_sent() - before) / static_cast<double>(planned));
    }
  }
}

using Clock = std::chrono::steady_clock;

double in_seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// `calls` have ended, and then one has failed, which began at `begin`.
void report_loss(Group& group, const PeerError& error, Clock::time_point begin, int calls) {
  const auto now = Clock::now();
  std::printf("lost rank %d after %.1f s: %s\n", error.rank(), in_seconds(now - begin),
              error.what());
  std::printf("gave up at %.3f after %d calls\n", in_seconds(now.time_since_epoch()), calls);
  try {
    run(group, {.kind = Collective::barrier});
    std::printf("continues without rank %d\n", error.rank());
  } catch (const PeerError&) {
  }
  std::fflush(stdout);
}

void sum_forever(Group& group) {
  std::vector<std::int32_t> values(1'000'000);
  const auto bytes = std::as_writable_bytes(std::span(values));
  const auto sum = group.size() * (group.size() + 1) / 2;
  auto begin = Clock::now();
  int calls = 0;
  try {
    for (;; ++calls) {
      std::fill(values.begin(), values.end(), 1 + group.rank());
      begin = Clock::now();
      run(group, {.kind = Collective::all_reduce,
                  .dtype = DType::int32,
                  .count = static_cast<std::int64_t>(values.size()),
                  .input = bytes,
                  .output = bytes});
      const auto num_right = std::count(values.begin(), values.end(), sum);
      if (num_right != static_cast<std::int64_t>(values.size())) std::printf("wrong sum\n");
    }
  } catch (const PeerError& error) {
    report_loss(group, error, begin, calls);
  }
}

void stay_idle(Group& group, const char* file) {
  auto begin = Clock::now();
  try {
    if (group.rank() % 2 == 0) {
      std::vector<std::byte> bytes(8);
      const int peer = group.rank() == 0 ? group.size() - 1 : 0;
      group.wait(*group.receive({.peer = peer, .count = 8}, bytes, nullptr));
    } else {
      while (!std::filesystem::exists(file)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      begin = Clock::now();
      run(group, {.kind = Collective::barrier});
    }
    std::printf("continues\n");
  } catch (const PeerError& error) {
    report_loss(group, error, begin, 0);
  }
}

}  // namespace

int main(int num_arguments, char** arguments) {
  try {
    const auto world = init();
    const auto group = make_group(world);
    std::printf("rank %d uses %s: %s\n", world.rank(), group->kind().c_str(),
                group->reason().c_str());
    std::fflush(stdout);
    const std::string_view what = num_arguments > 1 ? arguments[1] : "";
    if (what == "digest") {
      std::printf("digest %016llx\n",
                  static_cast<unsigned long long>(digest_of_reductions(*group)));
    }
    if (what == "bytes") print_bytes(*group, world);
    if (what == "forever") sum_forever(*group);
    if (what == "idle" && num_arguments > 2) stay_idle(*group, arguments[2]);
  } catch (const Error& error) {
    std::fprintf(stderr, "collectives_over_hosts: %s\n", error.what());
    return 1;
  }
  return 0;
}
