#include "lockstep/fabric/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/fabric/half_internal.h"

namespace lockstep {
namespace {

// Elements joined at a time: a stack of blocks stays in the first-level cache.
constexpr std::size_t kBlock = 512;
constexpr int kMaxDepth = 17;  // of a tree over 65,536 contributions

struct Boolean {
  std::uint8_t value;
};

// What elements of type Stored are while they are joined. Unsigned for integers: they wrap.
template <typename Stored>
struct JoinedAs {
  using type = Stored;
};
template <>
struct JoinedAs<Float16> {
  using type = float;
};
template <>
struct JoinedAs<BFloat16> {
  using type = float;
};
template <>
struct JoinedAs<Boolean> {
  using type = std::uint8_t;
};
template <typename Stored>
using Joined = typename JoinedAs<Stored>::type;

template <typename Stored>
Joined<Stored> load(Stored value) noexcept {
  if constexpr (std::is_same_v<Stored, Boolean>) {
    return value.value != 0 ? 1 : 0;
  } else if constexpr (std::is_class_v<Stored>) {
    return widen(value);
  } else {
    return value;
  }
}

template <typename Stored>
Stored store(Joined<Stored> value) noexcept {
  if constexpr (std::is_same_v<Stored, Float16>) {
    return narrow_to_float16(value);
  } else if constexpr (std::is_same_v<Stored, BFloat16>) {
    return narrow_to_bfloat16(value);
  } else {
    return Stored{value};
  }
}

struct Sum {
  template <typename T>
  static T join(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      using Wrapping = std::make_unsigned_t<T>;
      return static_cast<T>(
          static_cast<Wrapping>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b)));
    } else {
      return a + b;
    }
  }
};

struct Product {
  template <typename T>
  static T join(T a, T b) noexcept {
    if constexpr (std::is_integral_v<T>) {
      // 64 bits, so that no promotion to a signed int can overflow.
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
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

template <typename Stored, typename Op>
class BlockMachine {
 public:
  using Value = Joined<Stored>;

  BlockMachine(const TreePlan& plan, bool averages)
      : plan_(plan), divisor_(averages ? static_cast<Value>(plan.num_contributions()) : Value{1}) {
    LOCKSTEP_ASSERT(plan.depth() <= kMaxDepth, "a job has at most 65,536 ranks");
  }

  // The elements [begin, begin + count) of every contribution; the result lies in result().
  void run(std::span<const std::byte* const> sources, std::size_t begin, std::size_t count) {
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

  void write(std::byte* destination, std::size_t begin, std::size_t count) const {
    auto* __restrict out = reinterpret_cast<Stored*>(destination) + begin;
    const Value* __restrict in = stack_.data();
    if (divisor_ == Value{1}) {
      for (std::size_t i = 0; i < count; ++i) out[i] = store<Stored>(in[i]);
    } else if constexpr (std::is_floating_point_v<Value>) {
      for (std::size_t i = 0; i < count; ++i) out[i] = store<Stored>(in[i] / divisor_);
    }
  }

 private:
  static const Stored* at(std::span<const std::byte* const> sources, int index) {
    return reinterpret_cast<const Stored*>(sources[static_cast<std::size_t>(index)]);
  }

  Value* block(std::size_t height) { return stack_.data() + height * kBlock; }

  static void load_source(Value* __restrict out, const Stored* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = load(in[i]);
  }
  static void join_sources(Value* __restrict out, const Stored* __restrict a,
                           const Stored* __restrict b, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::join(load(a[i]), load(b[i]));
  }
  static void join_source(Value* __restrict out, const Stored* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::join(out[i], load(in[i]));
  }
  static void join_blocks(Value* __restrict out, const Value* __restrict in, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::join(out[i], in[i]);
  }

  const TreePlan& plan_;
  Value divisor_;
  std::array<Value, kMaxDepth * kBlock>
      stack_;  // blocks, the lowest first; filled as they are used
};

template <typename Stored, typename Op>
void run_blocks(const TreePlan& plan, bool averages, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, std::size_t count) {
  BlockMachine<Stored, Op> machine(plan, averages);
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const auto length = std::min(kBlock, count - begin);
    machine.run(sources, begin, length);
    for (auto* destination : destinations) machine.write(destination, begin, length);
  }
}

using Kernel = void (*)(const TreePlan&, bool, std::span<const std::byte* const>,
                        std::span<std::byte* const>, std::size_t);
// In the order of ReduceOp.
template <typename Stored, typename SumOp = Sum, typename ProductOp = Product>
constexpr std::array<Kernel, kNumReduceOps> kernels_of() {
  return {&run_blocks<Stored, SumOp>, &run_blocks<Stored, SumOp>, &run_blocks<Stored, Min>,
          &run_blocks<Stored, Max>, &run_blocks<Stored, ProductOp>};
}

// In the order of DType.
constexpr std::array<std::array<Kernel, kNumReduceOps>, kNumDTypes> kKernels{
    kernels_of<float>(),        kernels_of<double>(),       kernels_of<Float16>(),
    kernels_of<BFloat16>(),     kernels_of<std::int8_t>(),  kernels_of<std::int32_t>(),
    kernels_of<std::int64_t>(), kernels_of<std::uint8_t>(), kernels_of<Boolean, Max, Min>()};

}  // namespace

void reduce(const Reduction& reduction, const TreePlan& plan,
            std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            std::size_t count) {
  LOCKSTEP_ASSERT(static_cast<int>(sources.size()) == plan.num_contributions(),
                  "a plan joins as many contributions as it was made for");
  const auto& kernel =
      kKernels[static_cast<std::size_t>(reduction.dtype)][static_cast<std::size_t>(reduction.op)];
  kernel(plan, reduction.op == ReduceOp::average, sources, destinations, count);
}

void expect_meaning(const Reduction& reduction) {
  if (reduction.op == ReduceOp::average && !is_floating(reduction.dtype)) {
    throw UsageError(
        fmt::format("the average of {} has no meaning; sum it, or convert to floating point first",
                    to_string(reduction.dtype)));
  }
}

}  // namespace lockstep
