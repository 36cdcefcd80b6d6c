// Every pass over device memory is bit-identical to its twin over host memory.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/kernels/device_passes.h"
#include "lockstep/kernels/digest.h"
#include "lockstep/kernels/noted_loops.h"
#include "lockstep/kernels/squares.h"

namespace lockstep {
namespace {

// Many cells, and no multiple of any pack or block of threads.
constexpr std::size_t kCount = (3U << 16) + 1237;

class DevicePasses : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU on this machine";
    }
  }
};

// Host values with a copy in device memory.
template <typename T>
class Both {
 public:
  explicit Both(std::vector<T> values) : host(std::move(values)) {
    EXPECT_EQ(cudaMalloc(&device_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(device_, host.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Both(const Both&) = delete;
  Both& operator=(const Both&) = delete;
  ~Both() { cudaFree(device_); }

  [[nodiscard]] T* device() { return device_; }
  [[nodiscard]] std::vector<T> from_device() const {
    std::vector<T> copy(host.size());
    EXPECT_EQ(cudaMemcpy(copy.data(), device_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return copy;
  }
  void expect_equal(const char* what) const {
    const auto copy = from_device();
    EXPECT_EQ(std::memcmp(copy.data(), host.data(), bytes()), 0) << what;
  }

  std::vector<T> host;

 private:
  [[nodiscard]] std::size_t bytes() const { return host.size() * sizeof(T); }

  T* device_ = nullptr;
};

template <typename T>
std::vector<T> draw(std::uint64_t seed, double scale = 1, double shift = 0,
                    std::size_t count = kCount) {
  RandomStream stream({seed, random_purpose("device passes test")}, 0, 0);
  std::vector<T> values(count);
  for (auto& value : values) {
    const auto unit = static_cast<double>(stream() >> 40) * 0x1p-23 - 1;
    value = narrowed<T>(static_cast<WideOf<T>>(scale * unit + shift));
  }
  return values;
}

// Chunks of all lengths and alignments, with gaps between them, and their state without gaps;
// groups alternate.
std::vector<DeviceChunk> uneven_chunks(std::uint32_t groups) {
  std::vector<DeviceChunk> chunks;
  std::uint64_t begin = 3;
  std::uint64_t packed = 0;
  for (std::uint32_t i = 0; begin < kCount; ++i) {
    const auto wanted = i % 5 == 0 ? 7U : i % 3 == 0 ? kDeviceChunk : 1021U + i % 8;
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(wanted, kCount - begin));
    chunks.push_back({begin, packed, count, i % groups});
    packed += count;
    begin += count + i % 4;
  }
  return chunks;
}

DeviceChunks table_of(Both<DeviceChunk>& chunks) { return {chunks.device(), chunks.host.size()}; }

template <typename Stored>
void compare_adam() {
  using Wide = WideOf<Stored>;
  Both<AdamStep> steps({{.kept = 0.9997, .step_size = 3e-3, .root_factor = 22.4},
                        {.beta1 = 0.4, .decay = 0.01, .step_size = 1e-3, .root_factor = 3.1},
                        {.beta1 = 0.4, .step_size = 1e-3, .root_factor = 3.1},
                        {.decay = 0.02, .step_size = 2e-3}});
  Both<DeviceChunk> chunks(uneven_chunks(4));
  Both<Stored> values(draw<Stored>(1)), gradients(draw<Stored>(2, 0.1));
  Both<Wide> averages(draw<Wide>(3, 0.1)), squares(draw<Wide>(4, 1e-3, 1e-3));
  // Every other master is the stored value with lost bits; the rest were assigned by the user.
  Both<Wide> masters([&] {
    auto wide = draw<Wide>(1);
    for (std::size_t i = 0; i < kCount; i += 2) wide[i] += Wide(0.5);
    return wide;
  }());
  const bool has_masters = !std::is_same_v<Stored, Wide>;
  const AdamStretch<Stored> host{values.host.data(),
                                 gradients.host.data(),
                                 averages.host.data(),
                                 squares.host.data(),
                                 has_masters ? masters.host.data() : nullptr,
                                 kCount};
  const AdamStretch<Stored> device{values.device(),
                                   gradients.device(),
                                   averages.device(),
                                   squares.device(),
                                   has_masters ? masters.device() : nullptr,
                                   kCount};
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const auto& chunk : chunks.host) {
      adam_pass(host.part(chunk.begin, chunk.packed_begin, chunk.count), steps.host[chunk.group]);
    }
    launch_adam(device, table_of(chunks), steps.device(), nullptr, {});
  }
  values.expect_equal("values");
  averages.expect_equal("averages");
  squares.expect_equal("squares");
  if (has_masters) masters.expect_equal("masters");
  Both<std::uint32_t> skip({1});
  launch_adam(device, table_of(chunks), steps.device(), skip.device(), {});
  values.expect_equal("values after a skipped step");
  squares.expect_equal("squares after a skipped step");
}

TEST_F(DevicePasses, AdamStepsEqualTheHosts) {
  compare_adam<float>();
  compare_adam<double>();
  compare_adam<BFloat16>();
}

template <typename Stored>
void compare_sgd() {
  using Wide = WideOf<Stored>;
  Both<SgdStep> steps({{.lr = 0.1},
                       {.lr = 0.1, .momentum = 0.9, .is_first = true},
                       {.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .decay = 0.01},
                       {.lr = 0.1, .momentum = 0.9, .nesterov = true},
                       {.lr = 0.1, .momentum = 0.9, .decay = 0.1, .nesterov = true},
                       {.lr = 0.2, .decay = 0.01}});
  Both<DeviceChunk> chunks(uneven_chunks(6));
  Both<Stored> values(draw<Stored>(1)), gradients(draw<Stored>(2, 0.1));
  Both<Wide> momenta(draw<Wide>(3, 0.1)), masters(draw<Wide>(1));
  const bool has_masters = !std::is_same_v<Stored, Wide>;
  const SgdStretch<Stored> host{values.host.data(), gradients.host.data(), momenta.host.data(),
                                has_masters ? masters.host.data() : nullptr, kCount};
  const SgdStretch<Stored> device{values.device(), gradients.device(), momenta.device(),
                                  has_masters ? masters.device() : nullptr, kCount};
  for (const auto& chunk : chunks.host) {
    sgd_pass(host.part(chunk.begin, chunk.packed_begin, chunk.count), steps.host[chunk.group]);
  }
  launch_sgd(device, table_of(chunks), steps.device(), nullptr, {});
  values.expect_equal("values");
  momenta.expect_equal("momenta");
  if (has_masters) masters.expect_equal("masters");
}

TEST_F(DevicePasses, SgdStepsEqualTheHosts) {
  compare_sgd<float>();
  compare_sgd<double>();
  compare_sgd<BFloat16>();
}

template <typename Stored>
void compare_norm() {
  Both<Stored> values(draw<Stored>(7, 10));
  auto drawn = draw<double>(8, 1, 1);
  // More cells than one run.
  drawn.resize(3 * kTotalRun + 77);
  Both<double> cells(drawn);
  const auto total = total_of_cells(cells.host);
  Both<double> runs(std::vector<double>(num_runs(cells.host.size())));
  Both<DeviceNorm> norm({DeviceNorm{}});
  for (const auto count : {std::size_t{0}, std::size_t{300}, kTotalRun, cells.host.size()}) {
    launch_norm({cells.device(), count}, runs.device(), 1.5, norm.device(), {});
    EXPECT_EQ(norm.from_device()[0].total, total_of_cells(std::span(cells.host).first(count)));
  }
  const auto found = norm.from_device()[0];
  EXPECT_EQ(found.norm, std::sqrt(total));
  EXPECT_EQ(found.clip_factor, 1.5 / (std::sqrt(total) + 1e-6));

  Both<DeviceSlot> slots({{0, 7}, {10, 5000}, {5004, kCount}});
  const DeviceSlots table{slots.device(), slots.host.size()};
  launch_clip(values.device() + 5, 5, kCount - 4, table, norm.device(), {});
  NotedLoops<InstructionSet::baseline, Stored>::multiply(
      std::span(values.host).subspan(5, kCount - 9), found.clip_factor);
  values.expect_equal("clipped values");
  Both<DeviceNorm> short_norm({DeviceNorm{.clip_factor = 1}});
  launch_clip(values.device(), 0, kCount, table, short_norm.device(), {});
  values.expect_equal("values that need no clipping");

  Both<DeviceNorm> no_norm({DeviceNorm{.clip_factor = std::nan("")}});
  launch_clip(values.device(), 0, kCount, table, no_norm.device(), {});
  const auto after = values.from_device();
  for (std::size_t i = 0; i < 6000; ++i) {
    const bool is_padding = (i >= 7 && i < 10) || (i >= 5000 && i < 5004);
    EXPECT_EQ(std::isnan(widened(after[i])), !is_padding) << i;
  }
}

TEST_F(DevicePasses, ConstantsOfStepsEqualTheHosts) {
  constexpr std::size_t kParameters = 600;  // several blocks of threads
  std::vector<DeviceGroup> of_parameters;
  std::vector<std::int64_t> made;
  std::vector<std::uint32_t> present;
  for (std::uint32_t i = 0; i < kParameters; ++i) {
    of_parameters.push_back({.lr_factor = 1 + 0.1 * (i % 3), .weight_decay = 0.01 * (i % 4)});
    made.push_back(i * i);
    if (i % 5 != 0) present.push_back(i);
  }
  Both<DeviceGroup> groups(of_parameters);
  Both<std::uint32_t> indices(present);
  Both<double> lr({0.37});
  Both<std::uint32_t> skip({1});
  for (const bool decoupled : {false, true}) {
    const AdamRule rule{.beta1 = 0.93, .beta2 = 0.9987, .eps = 1e-7, .decoupled = decoupled};
    Both<std::int64_t> counts(made);
    Both<AdamStep> steps(std::vector<AdamStep>(kParameters, AdamStep{}));
    const DeviceParameters<AdamStep> parameters{indices.device(), present.size(), groups.device(),
                                                counts.device(), steps.device()};
    launch_steps(rule, parameters, {.lr = 0.2}, {});
    launch_steps(rule, parameters, {.lr_cell = lr.device(), .skip = skip.device()}, {});
    launch_steps(rule, parameters, {.lr_cell = lr.device()}, {});
    for (const auto i : present) {
      counts.host[i] += 2;
      steps.host[i] = adam_step(rule, 0.37 * of_parameters[i].lr_factor,
                                of_parameters[i].weight_decay, counts.host[i]);
    }
    counts.expect_equal("step counts");
    steps.expect_equal("constants of Adam");
  }
}

TEST_F(DevicePasses, NormAndClippingEqualTheHosts) {
  compare_norm<float>();
  compare_norm<double>();
  compare_norm<Float16>();
  compare_norm<BFloat16>();
}

// Slots of many lengths, some empty, with padding between them: more than 16 and than 256, so that
// the search for a slot has several rounds.
std::vector<DeviceSlot> uneven_slots(std::size_t count, std::uint64_t longest) {
  std::vector<DeviceSlot> slots;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; begin < count; ++i) {
    const auto length = i % 7 == 3 ? 0 : (i * i * 977 + i) % longest;
    slots.push_back({begin, std::min<std::uint64_t>(begin + length, count)});
    begin = (begin + length + 15) / 16 * 16;
  }
  return slots;
}

template <typename Stored>
void compare_squares(std::uint64_t longest, std::uint32_t width) {
  constexpr auto kCell = kCellElements<Stored>;
  const auto count = kCount / width * width;
  Both<Stored> values(draw<Stored>(7, 10));
  Both<DeviceSlot> slots(uneven_slots(count / width, longest));
  const DeviceSlots table{slots.device(), slots.host.size(), width};
  const auto num_keys = slots.host.size() + (count - 1) / kCell;
  // Two pieces, cut inside a slot and between blocks. Sums of no cell stay -1.
  const auto cut = kCell * (count / kCell / 2);
  Both<double> sums(std::vector<double>(num_keys, -1));
  for (const auto& [begin, end] : {std::pair{std::size_t{0}, cut}, std::pair{cut, count}}) {
    for (std::size_t i = 0; i < slots.host.size(); ++i) {
      const auto first = std::max<std::size_t>(slots.host[i].begin * width, begin);
      const auto last = std::min<std::size_t>(slots.host[i].end * width, end);
      for (auto at = first; at < last;) {
        const auto next = std::min(last, (at / kCell + 1) * kCell);
        SquaresLoops<InstructionSet::baseline, Stored>::cells(
            std::span<const Stored>(values.host).subspan(at, next - at), next - at,
            std::span(sums.host).subspan(i + at / kCell, 1));
        at = next;
      }
    }
    // Once all keys, once without the first ones.
    const std::size_t first_key = begin == 0 ? 0 : cut / kCell;
    launch_cells<Stored>(values.device() + begin, begin, end - begin, table,
                         {first_key, sums.device() + first_key, num_keys - first_key}, {});
  }
  sums.expect_equal("sums of squares");
}

TEST_F(DevicePasses, SumsOfSquaresEqualTheHosts) {
  for (const std::uint64_t longest : {200, 9000, 60'000}) {
    compare_squares<float>(longest, 1);
    compare_squares<float>(longest, 2);
    compare_squares<double>(longest, 1);
    compare_squares<Float16>(longest, 1);
    compare_squares<BFloat16>(longest, 1);
  }
}

template <typename Stored>
void compare_gather() {
  using Loops = NotedLoops<InstructionSet::baseline, Stored>;
  Both<Stored> to(draw<Stored>(9));
  auto drawn = draw<Stored>(8);
  drawn[5000] = narrowed<Stored>(std::numeric_limits<WideOf<Stored>>::infinity());
  Both<Stored> from(drawn);
  const auto chunks = uneven_chunks(1);
  for (const bool adds : {true, false}) {
    std::vector<GatheredGradient> entries;
    Both<std::uint32_t> notes(std::vector<std::uint32_t>(chunks.size() + 1));
    for (std::uint32_t i = 0; i < chunks.size(); ++i) {
      const auto& chunk = chunks[i];
      entries.push_back({from.device() + chunk.begin, to.device() + chunk.begin, chunk.count, i,
                         adds == (i % 2 == 0)});
      const auto part = std::span(to.host).subspan(chunk.begin, chunk.count);
      const auto* const first = from.host.data() + chunk.begin;
      notes.host[i] =
          entries[i].adds ? Loops::add(part, first) : Loops::copy(part, first, Caching::through);
    }
    launch_gather<Stored>(entries, notes.device(), {});
    to.expect_equal("gathered values");
    notes.expect_equal("notes of non-finite values");
    EXPECT_EQ(std::count(notes.host.begin(), notes.host.end(), 1U), 1);
    Both<std::uint32_t> found({0});
    launch_find_non_finite(to.device(), 5000, found.device(), {});
    EXPECT_EQ(found.from_device()[0], 0U);
    launch_find_non_finite(to.device(), kCount, found.device(), {});
    EXPECT_EQ(found.from_device()[0], 1U);
  }
}

TEST_F(DevicePasses, GatheredGradientsAndTheirNotesEqualTheHosts) {
  compare_gather<float>();
  compare_gather<double>();
  compare_gather<Float16>();
  compare_gather<BFloat16>();
}

TEST_F(DevicePasses, ScalersUnscaleAndUpdateAsTheHost) {
  Both<float> values(draw<float>(11));
  Both<DeviceScaler> scaler({DeviceScaler{.scale = 49152}});
  launch_unscale(values.device(), kCount, scaler.device(), {});
  NotedLoops<InstructionSet::baseline, float>::multiply(
      std::span(values.host), static_cast<float>(1.0 / static_cast<double>(49152.0F)));
  values.expect_equal("unscaled values");
  EXPECT_EQ(scaler.from_device()[0].found, 0U);
  for (int i = 0; i < 3; ++i) launch_scaler_update(scaler.device(), 2, 0.3, 3, {});
  EXPECT_EQ(scaler.from_device()[0].scale, 2 * 49152.0F);
  Both<float> infinite({std::numeric_limits<float>::infinity()});
  launch_unscale(infinite.device(), 1, scaler.device(), {});
  EXPECT_EQ(scaler.from_device()[0].found, 1U);
  launch_scaler_update(scaler.device(), 2, 0.3, 3, {});
  const auto after = scaler.from_device()[0];
  EXPECT_EQ(after.scale, static_cast<float>(2 * 49152.0F * 0.3));
  EXPECT_EQ(after.found, 0U);
  EXPECT_EQ(after.skipped, 1);
}

TEST_F(DevicePasses, DigestsEqualTheHosts) {
  Both<float> values(draw<float>(10));
  const auto bytes = std::as_bytes(std::span(values.host));
  for (const std::size_t length :
       {std::size_t{5}, std::size_t{8}, bytes.size() - 3, bytes.size()}) {
    Both<std::uint64_t> sum({0});
    const auto* const memory = reinterpret_cast<const std::byte*>(values.device());
    const auto half = length / 16 * 8;
    launch_digest(memory + half, length - half, half, sum.device(), {});
    launch_digest(memory, half, 0, sum.device(), {});
    EXPECT_EQ(sum.from_device()[0], digest(bytes.first(length))) << length;
  }
}

}  // namespace
}  // namespace lockstep
