// Reductions over device memory are bit-identical to those over host memory: every dtype and
// operation, with and without a compiled tree, at every alignment.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/half.h"
#include "lockstep/base/random.h"
#include "lockstep/kernels/device_reduce.h"

namespace lockstep {
namespace {

constexpr std::size_t kCount = 3001;
constexpr std::size_t kBytes = kCount * 8 + 64;

class DeviceReduce : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU on this machine";
    }
  }
};

// Random bytes; for floating point, random numbers of varying magnitude without NaN.
std::vector<std::byte> draw(DType dtype, std::uint64_t seed) {
  RandomStream random({seed, random_purpose("device reduce")}, 0, 0);
  std::vector<std::byte> bytes(kBytes);
  const auto write = [&](std::size_t at, const auto& value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  };
  for (std::size_t i = 0; i + 8 <= kBytes; i += bytes_of(dtype)) {
    const auto bits = random();
    const auto number = std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63,
                                   static_cast<int>(bits % 13) - 6);
    switch (dtype) {
      case DType::float32:
        write(i, static_cast<float>(number));
        break;
      case DType::float64:
        write(i, number);
        break;
      case DType::float16:
        write(i, static_cast<std::uint16_t>(narrow_to_float16(static_cast<float>(number))));
        break;
      case DType::bfloat16:
        write(i, static_cast<std::uint16_t>(narrow_to_bfloat16(static_cast<float>(number))));
        break;
      default:
        std::memcpy(bytes.data() + i, &bits, bytes_of(dtype));
    }
  }
  return bytes;
}

// Memory of the device, with `offset` bytes before what is used.
class OnDevice {
 public:
  OnDevice(const std::vector<std::byte>& bytes, std::size_t offset) : offset_(offset) {
    EXPECT_EQ(cudaMalloc(&start_, bytes.size() + offset), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(start_); }
  [[nodiscard]] std::byte* data() const { return start_ + offset_; }
  [[nodiscard]] std::vector<std::byte> read(std::size_t bytes) const {
    std::vector<std::byte> copy(bytes);
    EXPECT_EQ(cudaMemcpy(copy.data(), data(), bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    return copy;
  }

 private:
  std::byte* start_ = nullptr;
  std::size_t offset_;
};

void compare(const Reduction& reduction, const TreePlan& plan, std::size_t offset) {
  const auto num_sources = static_cast<std::size_t>(plan.num_contributions());
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::unique_ptr<OnDevice>> copies;
  std::vector<const std::byte*> host_sources;
  std::vector<const std::byte*> sources;
  for (std::size_t i = 0; i < num_sources; ++i) {
    inputs.push_back(draw(reduction.dtype, 10 * num_sources + i));
    copies.push_back(std::make_unique<OnDevice>(inputs.back(), offset));
    sources.push_back(copies.back()->data());
  }
  for (const auto& input : inputs) host_sources.push_back(input.data());
  const auto bytes = kCount * bytes_of(reduction.dtype);
  std::vector<std::byte> wanted(bytes);
  auto* const host_destination = wanted.data();
  reduce(reduction, plan, host_sources, std::span(&host_destination, 1), kCount);
  // One destination apart, and the first source in place.
  const OnDevice apart(std::vector<std::byte>(kBytes), offset);
  const std::vector<std::byte*> destinations{apart.data(), copies.front()->data()};
  launch_reduce(reduction, plan, sources, destinations, kCount, {});
  const auto what = std::string(to_string(reduction.op)) + " of " +
                    std::string(to_string(reduction.dtype)) + " over " +
                    std::to_string(num_sources) + ", offset " + std::to_string(offset);
  EXPECT_EQ(apart.read(bytes), wanted) << what;
  EXPECT_EQ(copies.front()->read(bytes), wanted) << what << ", in place";
}

TEST_F(DeviceReduce, EveryTypeAndOperationHasTheBitsOfTheHost) {
  for (int dtype = 0; dtype < kNumDTypes; ++dtype) {
    for (int op = 0; op < kNumReduceOps; ++op) {
      const Reduction reduction{static_cast<DType>(dtype), static_cast<ReduceOp>(op), 7};
      if (divides(reduction.op) && !is_floating(reduction.dtype)) continue;
      for (const int size : {1, 2, 3, 4, 5, 8, 13}) {
        compare(reduction, TreePlan::over_ranks(size), size % 2 == 0 ? 0 : 8);
      }
      const std::vector<LeafInterval> leaves{{0, 2}, {2, 3}, {3, 4}, {4, 8}};
      compare(reduction, TreePlan::over(leaves), 0);
    }
  }
}

TEST_F(DeviceReduce, MoreSourcesThanSupportedAreRefused) {
  const std::vector<const std::byte*> sources(kMaxDeviceSources + 1);
  std::byte* const destination = nullptr;
  EXPECT_ANY_THROW(launch_reduce({}, TreePlan::over_ranks(static_cast<int>(sources.size())),
                                 sources, std::span(&destination, 1), 1, {}));
}

}  // namespace
}  // namespace lockstep
