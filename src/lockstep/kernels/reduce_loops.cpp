// Two kinds of loops. For sums of float and double over 2, 4, 8 or 16 ranks the tree is compiled
// into the code: a cache line of each source is read once, reduced in registers and written.
// Everything else is reduced block by block, with a small stack of blocks. Lanes are independent:
// the result is bit-identical on every instruction set.
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
#include "lockstep/kernels/dtype.h"
#include "lockstep/kernels/leaf_tree.h"
#include "lockstep/kernels/reduce_element_internal.h"
#include "lockstep/kernels/reduce_loops_internal.h"

namespace lockstep {
namespace {

using Sources = std::span<const std::byte* const>;
using Destinations = std::span<std::byte* const>;

// Division by a power of two equals multiplication by an exact factor, bit for bit. The
// multiplication is fast enough that memory stays the limit.
inline bool is_power_of_two(double value) noexcept {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

// A stack of blocks, small enough for the first-level cache.
template <typename F, typename Op, typename Result = typename F::Stored>
class BlockMachine {
 public:
  static constexpr std::size_t kBlock = 512;  // elements
  static constexpr int kMaxDepth = 17;        // of a tree over 65,536 contributions

  BlockMachine(const TreePlan& plan, double divisor)
      : plan_(plan), divisor_(static_cast<Wide>(divisor)) {
    LOCKSTEP_ASSERT(plan.depth() <= kMaxDepth, "a job has at most 65,536 ranks");
  }

  void run(Sources sources, Destinations destinations, std::size_t first, std::size_t count) {
    for (auto begin = first; begin < count; begin += kBlock) {
      const auto length = std::min(kBlock, count - begin);
      reduce_block(sources, begin, length);
      const auto* result = narrow(length);
      for (auto* destination : destinations) {
        std::memcpy(destination + begin * sizeof(Result), result, length * sizeof(Result));
      }
    }
  }

 private:
  using Stored = typename F::Stored;
  using Wide = typename F::Wide;

  // Reduces elements [begin, begin + count) of every contribution into the lowest block.
  void reduce_block(Sources sources, std::size_t begin, std::size_t count) {
    std::size_t height = 0;
    const auto instructions = plan_.instructions();
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (instructions[i] == TreePlan::kCombine) {
        --height;
        combine_blocks(block(height - 1), block(height), count);
        continue;
      }
      // A contribution that is combined next is read directly from its source.
      const auto* source = at(sources, instructions[i]) + begin;
      const auto next = i + 1 < instructions.size() ? instructions[i + 1] : 0;
      if (next == TreePlan::kCombine) {
        combine_source(block(height - 1), source, count);
        ++i;
      } else if (i + 2 < instructions.size() && instructions[i + 2] == TreePlan::kCombine) {
        combine_sources(block(height++), source, at(sources, next) + begin, count);
        i += 2;
      } else {
        load_source(block(height++), source, count);
      }
    }
  }

  // The lowest block in the type of the result: rounded once for all destinations.
  const Result* narrow(std::size_t count) {
    Wide* __restrict in = stack_.data();
    if constexpr (std::is_floating_point_v<Wide>) {
      if (divisor_ != Wide{1}) {
        for (std::size_t i = 0; i < count; ++i) in[i] /= divisor_;
      }
    }
    if constexpr (std::is_same_v<Result, Wide>) {
      return in;
    } else {
      Result* __restrict out = result_.data();
      for (std::size_t i = 0; i < count; ++i) out[i] = F::narrow(in[i]);
      return out;
    }
  }

  static const Stored* at(Sources sources, int index) {
    return reinterpret_cast<const Stored*>(sources[static_cast<std::size_t>(index)]);
  }
  Wide* block(std::size_t height) { return stack_.data() + height * kBlock; }

  static void load_source(Wide* __restrict out, const Stored* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = F::widen(in[i]);
  }
  static void combine_sources(Wide* __restrict out, const Stored* __restrict a,
                              const Stored* __restrict b, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::combine(F::widen(a[i]), F::widen(b[i]));
  }
  static void combine_source(Wide* __restrict out, const Stored* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::combine(out[i], F::widen(in[i]));
  }
  static void combine_blocks(Wide* __restrict out, const Wide* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::combine(out[i], in[i]);
  }

  const TreePlan& plan_;
  Wide divisor_;
  std::array<Wide, kMaxDepth * kBlock> stack_;  // blocks, the lowest first; filled as used
  std::array<Result, kBlock> result_;           // used if Result differs from Wide
};

// Sums of T over exactly Count ranks, in registers of RegisterBytes.
template <typename T, int Count, std::size_t RegisterBytes>
class RegisterTree {
 public:
  // Reduces all whole lines; returns their number of elements.
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
  // x86 cores with wide registers wait for memory here and have time for the prefetch and the test
  // for zeros below. On a Neoverse V1 the two halved the speed, measured on zeros.
  static constexpr bool kWaits = RegisterBytes > 16;
  // Hardware prefetchers stop at the end of each page of 4 KiB. Spans of at least this size are
  // rarely cached; for cached spans a prefetch only costs time.
  static constexpr std::size_t kFetchedAhead = 1U << 20;
  static constexpr std::size_t kAhead = 2048;
  // GCC's vector extension: arithmetic per lane. Not wider than a register: GCC passes wider types
  // through the stack.
  typedef T Register __attribute__((vector_size(RegisterBytes)));
  // The same without alignment. With memcpy, GCC would copy through integer registers.
  typedef T InMemory __attribute__((vector_size(RegisterBytes), aligned(sizeof(T)), may_alias));

  template <typename Scale>
  static std::size_t run(Sources sources, Destinations destinations, std::size_t count,
                         Scale scale) noexcept {
    // A copy that no destination can alias stays in registers.
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

  // Whether all sources are +0 in the whole line. Their sum is +0 too and need not be written in
  // place. This is the case for rows of an embedding that no rank has used.
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

template <typename F, typename Op, typename Result = typename F::Stored>
void reduce_spans(const TreePlan& plan, double divisor, Sources sources, Destinations destinations,
                  std::size_t count) {
  BlockMachine<F, Op, Result>(plan, divisor).run(sources, destinations, 0, count);
}

// Partials of F, which are stored as they are reduced.
template <typename F>
struct PartialOf {
  using Stored = typename F::Wide;
  using Wide = typename F::Wide;
  [[gnu::always_inline]] static constexpr Wide widen(Stored value) noexcept { return value; }
  [[gnu::always_inline]] static constexpr auto narrow(Wide value) noexcept {
    return F::narrow(value);
  }
};

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

// In the order of ReduceOp.
template <typename F, typename Result>
constexpr std::array<ReduceLoop, kNumReduceOps> partial_loops_of() {
  return {&reduce_spans<F, Sum, Result>,     &reduce_spans<F, Sum, Result>,
          &reduce_spans<F, Min, Result>,     &reduce_spans<F, Max, Result>,
          &reduce_spans<F, Product, Result>, &reduce_spans<F, Sum, Result>};
}
constexpr PartialTable kToPartial{partial_loops_of<Half, float>(),
                                  partial_loops_of<BrainHalf, float>()};
constexpr PartialTable kFromPartials{partial_loops_of<PartialOf<Half>, std::uint16_t>(),
                                     partial_loops_of<PartialOf<BrainHalf>, std::uint16_t>()};

// In the order of ReduceOp. `Signed` is the type in which min and max compare.
template <typename F, typename Signed = F, typename SumOp = Sum, typename ProductOp = Product>
constexpr std::array<ReduceLoop, kNumReduceOps> loops_of() {
  return {&reduce_spans<F, SumOp>,    &reduce_spans<F, SumOp>,     &reduce_spans<Signed, Min>,
          &reduce_spans<Signed, Max>, &reduce_spans<F, ProductOp>, &reduce_spans<F, SumOp>};
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
template <InstructionSet Set>
const PartialTable& ReduceLoops<Set>::to_partial() noexcept {
  return kToPartial;
}
template <InstructionSet Set>
const PartialTable& ReduceLoops<Set>::from_partials() noexcept {
  return kFromPartials;
}
template struct ReduceLoops<kCompiledFor>;

}  // namespace lockstep
