// The loops of reduce.h, written once and compiled for each set of vector registers a processor may
// have: reduce_baseline.cpp, reduce_avx2.cpp, reduce_avx512.cpp. All of it lies in an unnamed
// namespace, so that no file's code is ever taken for another's. The bits are the same in all:
// lanes do not meet.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "lockstep/base/assert.h"
#include "lockstep/fabric/dtype.h"
#include "lockstep/fabric/half_internal.h"
#include "lockstep/fabric/leaf_tree.h"
#include "lockstep/fabric/reduce_kernels_internal.h"

namespace lockstep {

namespace {

// Elements are joined a cache line at a time, in registers: each line of each source is read once,
// and written where it was just read.
constexpr std::size_t kLine = 64;

template <typename T, std::size_t Lanes>
struct VectorOf {
  // GCC's vector extension: arithmetic lane by lane, in what registers the machine has.
  typedef T type __attribute__((vector_size(Lanes * sizeof(T))));
};

// How elements lie in memory: `Stored` each; how they are joined: vectors of `Joined`.
template <typename StoredType, typename JoinedType>
struct Format {
  using Stored = StoredType;
  using Joined = JoinedType;
  static constexpr std::size_t kLanes = kLine / sizeof(Joined);
  using Vector = typename VectorOf<Joined, kLanes>::type;
  using Raw = typename VectorOf<Stored, kLanes>::type;
};

// Integers are joined unsigned: they wrap. min and max need the sign.
struct Float32 : Format<float, float> {
  static Vector widen(Raw raw) { return raw; }
  static Raw narrow(Vector value) { return value; }
};
struct Float64 : Format<double, double> {
  static Vector widen(Raw raw) { return raw; }
  static Raw narrow(Vector value) { return value; }
};
template <typename Bits>
struct Integer : Format<Bits, Bits> {
  using typename Format<Bits, Bits>::Vector;
  static Vector widen(Vector raw) { return raw; }
  static Vector narrow(Vector value) { return value; }
};
struct Boolean : Format<std::uint8_t, std::uint8_t> {
  static Vector widen(Raw raw) { return raw != 0 ? (raw & 0) + 1 : (raw & 0); }
  static Raw narrow(Vector value) { return value; }
};
struct Half : Format<std::uint16_t, float> {
  using Wide = VectorOf<std::uint32_t, kLanes>::type;
  static Vector widen(Raw raw) { return widen_float16<Vector>(__builtin_convertvector(raw, Wide)); }
  static Raw narrow(Vector value) {
    return __builtin_convertvector(narrow_to_float16<Wide>(value), Raw);
  }
};
struct BrainHalf : Format<std::uint16_t, float> {
  using Wide = VectorOf<std::uint32_t, kLanes>::type;
  static Vector widen(Raw raw) {
    return widen_bfloat16<Vector>(__builtin_convertvector(raw, Wide));
  }
  static Raw narrow(Vector value) {
    return __builtin_convertvector(narrow_to_bfloat16<Wide>(value), Raw);
  }
};

struct Sum {
  template <typename V>
  static V join(V a, V b) noexcept {
    return a + b;
  }
};
struct Product {
  template <typename V>
  static V join(V a, V b) noexcept {
    return a * b;
  }
};
// a != a is true for NaN alone; where b is NaN the comparison is false and b is taken.
struct Min {
  template <typename V>
  static V join(V a, V b) noexcept {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Max {
  template <typename V>
  static V join(V a, V b) noexcept {
    return ((a > b) | (a != a)) ? a : b;
  }
};

template <typename F, typename Op>
class Joiner {
 public:
  using Stored = typename F::Stored;
  using Vector = typename F::Vector;
  using Raw = typename F::Raw;

  // The tree over contributions [First, First + Count), known at compile time.
  template <int First, int Count>
  static Vector tree(const std::byte* const* sources, std::size_t offset) noexcept {
    if constexpr (Count == 1) {
      return load(sources[First] + offset, sizeof(Raw));
    } else {
      constexpr int kMiddle = static_cast<int>(std::bit_floor(static_cast<unsigned>(Count - 1)));
      return Op::join(tree<First, kMiddle>(sources, offset),
                      tree<First + kMiddle, Count - kMiddle>(sources, offset));
    }
  }

  // Any plan; the last bytes of a span, `bytes` of them, too.
  static Vector interpret(const TreePlan& plan, const std::byte* const* sources, std::size_t offset,
                          std::size_t bytes) noexcept {
    std::array<Vector, kMaxDepth> stack;
    std::size_t height = 0;
    for (const int step : plan.steps()) {
      if (step == TreePlan::kJoin) {
        --height;
        stack[height - 1] = Op::join(stack[height - 1], stack[height]);
      } else {
        stack[height++] = load(sources[step] + offset, bytes);
      }
    }
    return stack[0];
  }

  template <typename JoinLine>
  static void run(const TreePlan& plan, bool averages, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, std::size_t count,
                  const JoinLine& join_line) noexcept {
    const auto total = count * sizeof(Stored);
    const auto divisor = static_cast<typename F::Joined>(averages ? plan.num_contributions() : 1);
    std::size_t offset = 0;
    for (; offset + sizeof(Raw) <= total; offset += sizeof(Raw)) {
      const auto joined = join_line(sources.data(), offset);
      write(destinations, offset, sizeof(Raw), averages ? joined / divisor : joined);
    }
    if (offset == total) return;
    const auto joined = interpret(plan, sources.data(), offset, total - offset);
    write(destinations, offset, total - offset, averages ? joined / divisor : joined);
  }

  static constexpr int kMaxDepth = 17;  // of a tree over 65,536 contributions

 private:
  static Vector load(const std::byte* from, std::size_t bytes) noexcept {
    Raw raw{};
    std::memcpy(&raw, from, bytes);
    return F::widen(raw);
  }

  static void write(std::span<std::byte* const> destinations, std::size_t offset, std::size_t bytes,
                    Vector value) noexcept {
    const Raw raw = F::narrow(value);
    for (auto* destination : destinations) std::memcpy(destination + offset, &raw, bytes);
  }
};

template <typename F, typename Op>
void join_spans(const TreePlan& plan, bool averages, std::span<const std::byte* const> sources,
                std::span<std::byte* const> destinations, std::size_t count) {
  using J = Joiner<F, Op>;
  LOCKSTEP_ASSERT(plan.depth() <= J::kMaxDepth, "a job has at most 65,536 ranks");
  const auto run = [&](const auto& join_line) {
    J::run(plan, averages, sources, destinations, count, join_line);
  };
  // What gradients go through: the usual sizes of a host have their tree in the code.
  if constexpr (std::is_same_v<Op, Sum> && std::is_floating_point_v<typename F::Joined>) {
    switch (plan.is_over_ranks() ? plan.num_contributions() : 0) {
      case 2:
        return run([](auto* from, std::size_t at) { return J::template tree<0, 2>(from, at); });
      case 4:
        return run([](auto* from, std::size_t at) { return J::template tree<0, 4>(from, at); });
      case 8:
        return run([](auto* from, std::size_t at) { return J::template tree<0, 8>(from, at); });
      case 16:
        return run([](auto* from, std::size_t at) { return J::template tree<0, 16>(from, at); });
      default:
        break;
    }
  }
  run([&](auto* from, std::size_t at) {
    return J::interpret(plan, from, at, sizeof(typename J::Raw));
  });
}

// In the order of ReduceOp. `Signed` is the format whose order min and max follow.
template <typename F, typename Signed = F, typename SumOp = Sum, typename ProductOp = Product>
constexpr std::array<ReduceKernel, kNumReduceOps> kernels_of() {
  return {&join_spans<F, SumOp>, &join_spans<F, SumOp>, &join_spans<Signed, Min>,
          &join_spans<Signed, Max>, &join_spans<F, ProductOp>};
}

// In the order of DType.
constexpr ReduceKernels kKernels{kernels_of<Float32>(),
                                 kernels_of<Float64>(),
                                 kernels_of<Half>(),
                                 kernels_of<BrainHalf>(),
                                 kernels_of<Integer<std::uint8_t>, Integer<std::int8_t>>(),
                                 kernels_of<Integer<std::uint32_t>, Integer<std::int32_t>>(),
                                 kernels_of<Integer<std::uint64_t>, Integer<std::int64_t>>(),
                                 kernels_of<Integer<std::uint8_t>>(),
                                 kernels_of<Boolean, Boolean, Max, Min>()};

}  // namespace
}  // namespace lockstep
