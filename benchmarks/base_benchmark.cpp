// The speed of room base, compared with the memory and with the usual alternative. Read the rows in
// pairs.
#include <benchmark/benchmark.h>
#include <zlib.h>

#include <cstring>
#include <random>
#include <vector>

#include "lockstep/base/crc32c.h"
#include "lockstep/base/random.h"
#include "lockstep/kernels/digest.h"

namespace {

constexpr std::size_t kBytes = 64u << 20;  // larger than the caches

std::vector<std::byte> filled() {
  std::vector<std::byte> bytes(kBytes);
  lockstep::RandomStream random({1, lockstep::random_purpose("benchmark")}, 0, 0);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    const auto word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kBytes));
}

void memory_copy(benchmark::State& state) {
  const auto from = filled();
  std::vector<std::byte> to(kBytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kBytes);
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}
BENCHMARK(memory_copy);

void digest(benchmark::State& state) {
  const auto bytes = filled();
  for (auto _ : state) benchmark::DoNotOptimize(lockstep::digest(bytes));
  count_bytes(state);
}
BENCHMARK(digest);

void crc32c(benchmark::State& state) {
  const auto bytes = filled();
  for (auto _ : state) benchmark::DoNotOptimize(lockstep::crc32c_of_thirds(bytes));
  count_bytes(state);
}
BENCHMARK(crc32c);

void zlib_crc32(benchmark::State& state) {
  const auto bytes = filled();
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  }
  count_bytes(state);
}
BENCHMARK(zlib_crc32);

void philox_stream(benchmark::State& state) {
  lockstep::RandomStream random({1, lockstep::random_purpose("benchmark")}, 0, 0);
  for (auto _ : state) benchmark::DoNotOptimize(random());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(philox_stream);

void mersenne_twister(benchmark::State& state) {
  std::mt19937_64 random(1);
  for (auto _ : state) benchmark::DoNotOptimize(random());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(mersenne_twister);

}  // namespace
