// Where one-shot calls stop to pay: they save a wait, and every rank reads every input.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>

#include "lockstep/fabric/shm_engine_internal.h"

namespace lockstep {
namespace {

constexpr std::array<std::size_t, 7> kSizes{256,      512,      1U << 10, 2U << 10,
                                            4U << 10, 8U << 10, 16U << 10};
constexpr int kRuns = 5;  // the best counts: what disturbs a run only makes it longer

std::int64_t best_nanoseconds(ShmEngine& engine, std::span<std::byte> span) {
  using Clock = std::chrono::steady_clock;
  const Call call{.kind = Collective::all_reduce,
                  .dtype = DType::float32,
                  .count = static_cast<std::int64_t>(span.size() / sizeof(float)),
                  .name = "switch point",
                  .input = span,
                  .output = span};
  auto best = std::numeric_limits<std::int64_t>::max();
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = Clock::now();
    engine.wait(*engine.start(call, nullptr), std::nullopt);
    best = std::min<std::int64_t>(best, (Clock::now() - begin).count());
  }
  return best;
}

}  // namespace

std::size_t measure_switch_point(ShmEngine& engine) {
  const auto memory = engine.allocate(kSizes.back());
  std::size_t found = kSizes.front() / 2;  // up to here nobody has measured anything else to pay
  for (const auto size : kSizes) {
    const auto span = memory->bytes().first(size);
    engine.set_one_shot_bytes(size);
    const auto one_shot = best_nanoseconds(engine, span);
    engine.set_one_shot_bytes(0);
    const auto shared = best_nanoseconds(engine, span);
    if (one_shot <= shared && found == size / 2) found = size;
  }
  // Ranks measure differently: the first one's word counts.
  std::uint64_t agreed = found;
  const auto bytes = std::as_writable_bytes(std::span(&agreed, 1));
  Call call{.kind = Collective::broadcast,
            .count = static_cast<std::int64_t>(bytes.size()),
            .name = "switch point"};
  if (engine.rank() == 0) {
    call.input = bytes;
  } else {
    call.output = bytes;
  }
  engine.set_one_shot_bytes(kSizes.front());
  engine.wait(*engine.start(call, nullptr), std::nullopt);
  return agreed;
}

}  // namespace lockstep
