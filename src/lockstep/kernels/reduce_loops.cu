// A thread reduces a pack of neighboring elements: it loads the pack of every source, reduces it in
// registers and stores it to every destination. For sums over 1, 2, 4 or 8 ranks the tree is
// compiled into the code; every other reduction runs the plan's program for each element.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/kernels/device_reduce.h"
#include "lockstep/kernels/launch_internal.h"
#include "lockstep/kernels/reduce_element_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kPackBytes = 16;
constexpr int kMaxDepth = 8;  // of the stack for a tree over kMaxDeviceSources contributions

struct Arguments {
  const void* sources[kMaxDeviceSources];
  void* destinations[kMaxDeviceSources];
  std::int8_t program[2 * kMaxDeviceSources];
  int num_sources = 0;
  int num_destinations = 0;
  int num_instructions = 0;
  double divisor = 1;
};
static_assert(sizeof(Arguments) < 4096, "the limit of a kernel's arguments");

template <typename T, int Size>
struct alignas(sizeof(T) * Size) Pack {
  T values[Size];
};

template <typename F>
__device__ typename F::Stored finished(typename F::Wide value, double divisor) {
  if constexpr (std::is_floating_point_v<typename F::Wide>) {
    if (divisor != 1) value /= static_cast<typename F::Wide>(divisor);
  }
  return F::narrow(value);
}

// The tree over contributions [First, First + Length) of element i of the packs.
template <typename F, typename Op, int First, int Length, typename P>
__device__ typename F::Wide tree(const P* packs, int i) {
  if constexpr (Length == 1) {
    return F::widen(packs[First].values[i]);
  } else {
    constexpr int kMiddle = Length > 4 ? 4 : Length > 2 ? 2 : 1;
    return Op::combine(tree<F, Op, First, kMiddle>(packs, i),
                       tree<F, Op, First + kMiddle, Length - kMiddle>(packs, i));
  }
}

template <typename F, typename Op, int Size>
__device__ typename F::Wide run_program(const Arguments& arguments, std::size_t at, int i) {
  using P = Pack<typename F::Stored, Size>;
  typename F::Wide stack[kMaxDepth];
  int height = 0;
  for (int k = 0; k < arguments.num_instructions; ++k) {
    const int instruction = arguments.program[k];
    if (instruction == TreePlan::kCombine) {
      --height;
      stack[height - 1] = Op::combine(stack[height - 1], stack[height]);
    } else {
      stack[height++] =
          F::widen(static_cast<const P*>(arguments.sources[instruction])[at].values[i]);
    }
  }
  return stack[0];
}

// Count: the number of contributions of a compiled tree; 0: the plan's program. Begins at pack
// `first`.
template <typename F, typename Op, int Size, int Count>
__global__ void reduce_packs(const __grid_constant__ Arguments arguments, std::size_t first,
                             std::size_t packs) {
  using P = Pack<typename F::Stored, Size>;
  const auto step = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (auto at = first + blockIdx.x * std::size_t{kThreads} + threadIdx.x; at < packs; at += step) {
    P result;
    if constexpr (Count > 0) {
      P inputs[Count];
#pragma unroll
      for (int k = 0; k < Count; ++k) inputs[k] = static_cast<const P*>(arguments.sources[k])[at];
#pragma unroll
      for (int i = 0; i < Size; ++i) {
        result.values[i] = finished<F>(tree<F, Op, 0, Count>(inputs, i), arguments.divisor);
      }
    } else {
      for (int i = 0; i < Size; ++i) {
        result.values[i] =
            finished<F>(run_program<F, Op, Size>(arguments, at, i), arguments.divisor);
      }
    }
    for (int k = 0; k < arguments.num_destinations; ++k) {
      static_cast<P*>(arguments.destinations[k])[at] = result;
    }
  }
}

template <typename F, typename Op, int Size, int Count>
void launch(const Arguments& arguments, std::size_t first, std::size_t packs, cudaStream_t stream) {
  if (first >= packs) return;
  constexpr std::size_t kMaxBlocks = 1U << 20;
  const auto blocks = std::min((packs - first + kThreads - 1) / kThreads, kMaxBlocks);
  reduce_packs<F, Op, Size, Count>
      <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(arguments, first, packs);
  expect_launched("a reduction");
}

bool are_aligned(const Arguments& arguments) {
  const auto is_aligned = [](const void* start) {
    return reinterpret_cast<std::uintptr_t>(start) % kPackBytes == 0;
  };
  return std::all_of(arguments.sources, arguments.sources + arguments.num_sources, is_aligned) &&
         std::all_of(arguments.destinations, arguments.destinations + arguments.num_destinations,
                     is_aligned);
}

template <typename F, typename Op, int Count>
void launch_all(const Arguments& arguments, std::size_t count, cudaStream_t stream) {
  constexpr int kSize = kPackBytes / sizeof(typename F::Stored);
  const auto packs = are_aligned(arguments) ? count / kSize : 0;
  launch<F, Op, kSize, Count>(arguments, 0, packs, stream);
  launch<F, Op, 1, Count>(arguments, packs * kSize, count, stream);
}

using Launch = void (*)(const Arguments&, std::size_t, cudaStream_t);

template <typename F, typename Op>
Launch launch_of(bool /*over_ranks*/, int /*count*/) {
  return &launch_all<F, Op, 0>;
}
// Sums of floating point, which training adds up.
template <typename F>
Launch sum_of(bool over_ranks, int count) {
  if (over_ranks && count == 1) return &launch_all<F, Sum, 1>;
  if (over_ranks && count == 2) return &launch_all<F, Sum, 2>;
  if (over_ranks && count == 4) return &launch_all<F, Sum, 4>;
  if (over_ranks && count == 8) return &launch_all<F, Sum, 8>;
  return &launch_all<F, Sum, 0>;
}

using Choose = Launch (*)(bool over_ranks, int count);

// In the order of ReduceOp and of DType, as the table of the host's loops.
template <typename F, typename Signed = F, typename SumOp = Sum, typename ProductOp = Product>
constexpr std::array<Choose, kNumReduceOps> loops_of() {
  return {&launch_of<F, SumOp>,    &launch_of<F, SumOp>,     &launch_of<Signed, Min>,
          &launch_of<Signed, Max>, &launch_of<F, ProductOp>, &launch_of<F, SumOp>};
}
template <typename F>
constexpr std::array<Choose, kNumReduceOps> floating_loops() {
  auto loops = loops_of<F>();
  loops[static_cast<std::size_t>(ReduceOp::sum)] = &sum_of<F>;
  loops[static_cast<std::size_t>(ReduceOp::average)] = &sum_of<F>;
  loops[static_cast<std::size_t>(ReduceOp::weighted_average)] = &sum_of<F>;
  return loops;
}
constexpr std::array<std::array<Choose, kNumReduceOps>, kNumDTypes> kTable{
    floating_loops<Plain<float>>(),
    floating_loops<Plain<double>>(),
    floating_loops<Half>(),
    floating_loops<BrainHalf>(),
    loops_of<Plain<std::uint8_t>, Plain<std::int8_t>>(),
    loops_of<Plain<std::uint32_t>, Plain<std::int32_t>>(),
    loops_of<Plain<std::uint64_t>, Plain<std::int64_t>>(),
    loops_of<Plain<std::uint8_t>>(),
    loops_of<Boolean, Boolean, Max, Min>()};

}  // namespace

void launch_reduce(const Reduction& reduction, const TreePlan& plan,
                   std::span<const std::byte* const> sources,
                   std::span<std::byte* const> destinations, std::size_t count,
                   DeviceStream stream) {
  if (count == 0 || destinations.empty()) return;
  if (sources.size() > kMaxDeviceSources || destinations.size() > kMaxDeviceSources) {
    throw UsageError("a reduction on a GPU has at most " + std::to_string(kMaxDeviceSources) +
                     " sources and destinations");
  }
  Arguments arguments;
  std::copy(sources.begin(), sources.end(), arguments.sources);
  std::copy(destinations.begin(), destinations.end(), arguments.destinations);
  const auto program = plan.instructions();
  std::transform(program.begin(), program.end(), arguments.program,
                 [](int instruction) { return static_cast<std::int8_t>(instruction); });
  arguments.num_sources = static_cast<int>(sources.size());
  arguments.num_destinations = static_cast<int>(destinations.size());
  arguments.num_instructions = static_cast<int>(program.size());
  arguments.divisor = divisor_of(reduction, plan);
  const auto choose =
      kTable[static_cast<std::size_t>(reduction.dtype)][static_cast<std::size_t>(reduction.op)];
  choose(plan.is_over_ranks(), plan.num_contributions())(arguments, count, cuda_stream(stream));
}

}  // namespace lockstep
