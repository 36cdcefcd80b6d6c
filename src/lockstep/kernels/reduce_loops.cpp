// Two kinds of loops. Sums of float and double over the usual numbers of ranks have their tree in
// the code: each cache line of each source is read once and written where it was just read, without
// leaving registers. Everything else is reduced block by block, with a small stack of blocks.
// Lanes do not meet: the bits are the same on every instruction set.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "lockstep/base/assert.h"
#include "lockstep/base/half.h"
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/kernels/reduce_loops_internal.h"

namespace lockstep {
namespace {

using Sources = std::span<const std::byte* const>;
using Destinations = std::span<std::byte* const>;

// How elements lie in memory (Stored), and what they are while they are joined (Joined).
template <typename T>
struct Plain {
  using Stored = T;
  using Joined = T;
  static T widen(T value) noexcept { return value; }
  static T narrow(T value) noexcept { return value; }
};
struct Boolean {
  using Stored = std::uint8_t;
  using Joined = std::uint8_t;
  static Joined widen(Stored value) noexcept { return value != 0 ? 1 : 0; }
  static Stored narrow(Joined value) noexcept { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Joined = float;
  static float widen(Stored value) noexcept { return widen_float16(value); }
  static Stored narrow(float value) noexcept {
    return static_cast<Stored>(narrow_to_float16(value));
  }
};
struct BrainHalf {
  using Stored = std::uint16_t;
  using Joined = float;
  static float widen(Stored value) noexcept { return widen_bfloat16(value); }
  static Stored narrow(float value) noexcept {
    return static_cast<Stored>(narrow_to_bfloat16(value));
  }
};

// Integers come unsigned, so that they wrap; min and max need the sign.
struct Sum {
  template <typename T>
  static T join(T a, T b) noexcept {
    return static_cast<T>(a + b);
  }
};
struct Product {
  template <typename T>
  static T join(T a, T b) noexcept {
    return static_cast<T>(a * b);
  }
};
// a != a is true for NaN alone; where b is NaN the comparison is false and b is taken.
struct Min {
  template <typename T>
  static T join(T a, T b) noexcept {
    return (a < b || a != a) ? a : b;
  }
};
struct Max {
  template <typename T>
  static T join(T a, T b) noexcept {
    return (a > b || a != a) ? a : b;
  }
};

// By a power of two an exact factor gives the bits of the division, and does not slow down what
// memory can deliver.
inline bool is_power_of_two(double value) noexcept {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

// A stack of blocks, small enough for the first-level cache.
template <typename F, typename Op>
class BlockMachine {
 public:
  static constexpr std::size_t kBlock = 512;  // elements
  static constexpr int kMaxDepth = 17;        // of a tree over 65,536 contributions

  BlockMachine(const TreePlan& plan, double divisor)
      : plan_(plan), divisor_(static_cast<Joined>(divisor)) {
    LOCKSTEP_ASSERT(plan.depth() <= kMaxDepth, "a job has at most 65,536 ranks");
  }

  void run(Sources sources, Destinations destinations, std::size_t first, std::size_t count) {
    for (auto begin = first; begin < count; begin += kBlock) {
      const auto length = std::min(kBlock, count - begin);
      join(sources, begin, length);
      const auto* result = narrow(length);
      for (auto* destination : destinations) {
        std::memcpy(destination + begin * sizeof(Stored), result, length * sizeof(Stored));
      }
    }
  }

 private:
  using Stored = typename F::Stored;
  using Joined = typename F::Joined;

  // Elements [begin, begin + count) of every contribution, into the lowest block.
  void join(Sources sources, std::size_t begin, std::size_t count) {
    std::size_t height = 0;
    const auto steps = plan_.steps();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i] == TreePlan::kJoin) {
        --height;
        join_blocks(block(height - 1), block(height), count);
        continue;
      }
      // A contribution that is joined at once is read where it lies.
      const auto* source = at(sources, steps[i]) + begin;
      const auto next = i + 1 < steps.size() ? steps[i + 1] : 0;
      if (next == TreePlan::kJoin) {
        join_source(block(height - 1), source, count);
        ++i;
      } else if (i + 2 < steps.size() && steps[i + 2] == TreePlan::kJoin) {
        join_sources(block(height++), source, at(sources, next) + begin, count);
        i += 2;
      } else {
        load_source(block(height++), source, count);
      }
    }
  }

  // The lowest block as it is stored: rounded once, whatever the number of destinations.
  const Stored* narrow(std::size_t count) {
    Joined* __restrict in = stack_.data();
    if constexpr (std::is_floating_point_v<Joined>) {
      if (divisor_ != Joined{1}) {
        for (std::size_t i = 0; i < count; ++i) in[i] /= divisor_;
      }
    }
    if constexpr (std::is_same_v<Stored, Joined>) {
      return in;
    } else {
      Stored* __restrict out = result_.data();
      for (std::size_t i = 0; i < count; ++i) out[i] = F::narrow(in[i]);
      return out;
    }
  }

  static const Stored* at(Sources sources, int index) {
    return reinterpret_cast<const Stored*>(sources[static_cast<std::size_t>(index)]);
  }
  Joined* block(std::size_t height) { return stack_.data() + height * kBlock; }

  static void load_source(Joined* __restrict out, const Stored* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = F::widen(in[i]);
  }
  static void join_sources(Joined* __restrict out, const Stored* __restrict a,
                           const Stored* __restrict b, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::join(F::widen(a[i]), F::widen(b[i]));
  }
  static void join_source(Joined* __restrict out, const Stored* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::join(out[i], F::widen(in[i]));
  }
  static void join_blocks(Joined* __restrict out, const Joined* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::join(out[i], in[i]);
  }

  const TreePlan& plan_;
  Joined divisor_;
  std::array<Joined, kMaxDepth * kBlock> stack_;  // blocks, the lowest first; filled as used
  std::array<Stored, kBlock> result_;             // where it differs from the lowest block
};

// Sums of T over exactly Count ranks, in registers of RegisterBytes.
template <typename T, int Count, std::size_t RegisterBytes>
class RegisterTree {
 public:
  // All whole lines; returns how many elements that were.
  static std::size_t run(double divisor, Sources sources, Destinations destinations,
                         std::size_t count) noexcept {
    if (!is_power_of_two(divisor)) {
      const auto by = static_cast<T>(divisor);
      return run(sources, destinations, count, [by](Register sum) { return sum / by; });
    }
    const auto factor = static_cast<T>(1 / divisor);
    return run(sources, destinations, count, [factor](Register sum) { return sum * factor; });
  }

 private:
  static constexpr std::size_t kLine = 64;
  // Cores with wide registers, those of x86, wait for memory here and have time for the two things
  // below; with them a Neoverse V1 was half as fast, on zeros.
  static constexpr bool kWaits = RegisterBytes > 16;
  // They fetch ahead by themselves, but stop at the end of each page of 4 KiB. Spans from this size
  // on are hardly in a cache, where asking costs.
  static constexpr std::size_t kFetchedAhead = 1U << 20;
  static constexpr std::size_t kAhead = 2048;
  // GCC's vector extension: arithmetic lane by lane. As wide as a register and no wider: GCC takes
  // wider ones through the stack.
  typedef T Register __attribute__((vector_size(RegisterBytes)));
  // The same wherever elements may lie. GCC would copy by way of integer registers with memcpy.
  typedef T InMemory __attribute__((vector_size(RegisterBytes), aligned(sizeof(T)), may_alias));

  template <typename Scale>
  static std::size_t run(Sources sources, Destinations destinations, std::size_t count,
                         Scale scale) noexcept {
    // A copy that no destination can overlap stays in registers.
    std::array<const std::byte*, Count> starts;
    std::copy_n(sources.begin(), Count, starts.begin());
    const auto total = count * sizeof(T);
    const bool ahead = kWaits && total >= kFetchedAhead;
    const bool in_place = kWaits && std::ranges::equal(sources, destinations);
    std::size_t offset = 0;
    for (; offset + kLine <= total; offset += kLine) {
      if (ahead) {
        for (const auto* start : starts) __builtin_prefetch(start + offset + kAhead);
      }
      Register line[kLine / RegisterBytes];
      for (std::size_t i = 0; i < kLine / RegisterBytes; ++i) {
        const auto sum = tree<0, Count>(starts.data(), offset + i * RegisterBytes);
        line[i] = scale(sum);
      }
      if (in_place && line[0][0] == 0 && are_zeros(starts, offset)) continue;
      for (auto* destination : destinations) {
        auto* out = reinterpret_cast<InMemory*>(destination + offset);
        for (std::size_t i = 0; i < kLine / RegisterBytes; ++i) out[i] = line[i];
      }
    }
    return offset / sizeof(T);
  }

  // Whether all sources have zeros there, not one of them negative. Their sum is the same, and need
  // not be written in their place: rows of an embedding that no rank has used.
  static bool are_zeros(const std::array<const std::byte*, Count>& starts,
                        std::size_t offset) noexcept {
    std::uint64_t any = 0;
    for (const auto* start : starts) {
      std::array<std::uint64_t, kLine / sizeof(any)> words;
      std::memcpy(words.data(), start + offset, kLine);
      for (const auto word : words) any |= word;
    }
    return any == 0;
  }

  template <int First, int Length>
  static Register tree(const std::byte* const* starts, std::size_t offset) noexcept {
    if constexpr (Length == 1) {
      return *reinterpret_cast<const InMemory*>(starts[First] + offset);
    } else {
      constexpr int kMiddle = static_cast<int>(std::bit_floor(static_cast<unsigned>(Length - 1)));
      return tree<First, kMiddle>(starts, offset) +
             tree<First + kMiddle, Length - kMiddle>(starts, offset);
    }
  }
};

template <typename F, typename Op>
void join_spans(const TreePlan& plan, double divisor, Sources sources, Destinations destinations,
                std::size_t count) {
  BlockMachine<F, Op>(plan, divisor).run(sources, destinations, 0, count);
}

template <typename T, std::size_t RegisterBytes>
void sum_spans(const TreePlan& plan, double divisor, Sources sources, Destinations destinations,
               std::size_t count) {
  std::size_t done = 0;
  switch (plan.is_over_ranks() ? plan.num_contributions() : 0) {
    case 2:
      done = RegisterTree<T, 2, RegisterBytes>::run(divisor, sources, destinations, count);
      break;
    case 4:
      done = RegisterTree<T, 4, RegisterBytes>::run(divisor, sources, destinations, count);
      break;
    case 8:
      done = RegisterTree<T, 8, RegisterBytes>::run(divisor, sources, destinations, count);
      break;
    case 16:
      done = RegisterTree<T, 16, RegisterBytes>::run(divisor, sources, destinations, count);
      break;
    default:
      break;
  }
  if (done < count) {
    BlockMachine<Plain<T>, Sum>(plan, divisor).run(sources, destinations, done, count);
  }
}

// In the order of ReduceOp. `Signed` is the format whose order min and max follow.
template <typename F, typename Signed = F, typename SumOp = Sum, typename ProductOp = Product>
constexpr std::array<ReduceLoop, kNumReduceOps> loops_of() {
  return {&join_spans<F, SumOp>,    &join_spans<F, SumOp>,     &join_spans<Signed, Min>,
          &join_spans<Signed, Max>, &join_spans<F, ProductOp>, &join_spans<F, SumOp>};
}
template <typename T, std::size_t RegisterBytes>
constexpr std::array<ReduceLoop, kNumReduceOps> floating_loops() {
  auto loops = loops_of<Plain<T>>();
  loops[static_cast<std::size_t>(ReduceOp::sum)] = &sum_spans<T, RegisterBytes>;
  loops[static_cast<std::size_t>(ReduceOp::average)] = &sum_spans<T, RegisterBytes>;
  loops[static_cast<std::size_t>(ReduceOp::weighted_average)] = &sum_spans<T, RegisterBytes>;
  return loops;
}

// In the order of DType.
template <std::size_t RegisterBytes>
constexpr ReduceTable kTable{floating_loops<float, RegisterBytes>(),
                             floating_loops<double, RegisterBytes>(),
                             loops_of<Half>(),
                             loops_of<BrainHalf>(),
                             loops_of<Plain<std::uint8_t>, Plain<std::int8_t>>(),
                             loops_of<Plain<std::uint32_t>, Plain<std::int32_t>>(),
                             loops_of<Plain<std::uint64_t>, Plain<std::int64_t>>(),
                             loops_of<Plain<std::uint8_t>>(),
                             loops_of<Boolean, Boolean, Max, Min>()};

}  // namespace

template <InstructionSet Set>
const ReduceTable& ReduceLoops<Set>::table() noexcept {
  return kTable<kRegisterBytes>;
}
template struct ReduceLoops<kCompiledFor>;

}  // namespace lockstep
