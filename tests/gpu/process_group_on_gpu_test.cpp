// ProcessGroup on CUDA tensors of several ranks that share one GPU, as processes: every collective
// gives the bits that it gives on CPU tensors, in the order of LibTorch's streams.
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/process_group.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

const at::Device kGpu(at::kCUDA, 0);

class OnSharedGpu : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }
  static void run(const std::function<void(ProcessGroup&)>& body) {
    const auto [backend, size] = GetParam();
    (void)testing::run_ranks_as_processes(size, [&, backend = backend](testing::Rank& self) {
      const auto world = world_of_processes(self.rank(), self.size());
      ProcessGroup group(world, {.timeout = std::chrono::seconds(60), .backend = backend});
      body(group);
      self.barrier(self.deadline());
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, OnSharedGpu,
                         ::testing::Combine(::testing::Values(Backend::automatic, Backend::ipc,
                                                              Backend::staged),
                                            ::testing::Values(2, 4)));

// Different on every rank, and rounded differently in every order of summation.
at::Tensor draw(const ProcessGroup& group, std::int64_t count, at::ScalarType dtype) {
  torch::manual_seed(static_cast<std::uint64_t>(group.rank() + 1));
  const auto values = torch::randn({count}) * torch::exp2(torch::randint(-6, 7, {count}));
  return c10::isFloatingType(dtype) ? values.to(dtype) : (values * 50).to(dtype);
}

using Act = std::function<at::Tensor(const ProcessGroup&, const at::Tensor&)>;

struct NamedAct {
  std::string name;
  Act act;
};

// Rank 0 owns the first element and the last third, the last rank all others.
std::shared_ptr<const Owners> uneven_owners(const ProcessGroup& group, std::int64_t count) {
  const auto third = count / 3;
  const std::vector<OwnedPiece> pieces{{0, 1}, {group.size() - 1, count - 1 - third}, {0, third}};
  return std::make_shared<const Owners>(group.size(), pieces);
}

// Each takes size() × n elements and returns its result.
std::vector<NamedAct> acts() {
  const auto reduce_to = [](ReduceOp op) {
    return [op](const ProcessGroup& group, const at::Tensor& input) {
      auto tensor = input.clone();
      group.all_reduce(tensor, op).wait();
      return tensor;
    };
  };
  return {
      {"sum", reduce_to(ReduceOp::sum)},
      {"max", reduce_to(ReduceOp::max)},
      {"product", reduce_to(ReduceOp::product)},
      {"weighted average",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto tensor =
             c10::isFloatingType(input.scalar_type()) ? input.clone() : input.to(at::kFloat);
         group.all_reduce(tensor, ReduceOp::weighted_average, {.weight = group.rank() + 2}).wait();
         return tensor;
       }},
      {"reduce_scatter",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto output = torch::empty({input.numel() / group.size()}, input.options());
         group.reduce_scatter(output, input).wait();
         return output;
       }},
      {"all_gather",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto output = torch::empty({input.numel() * group.size()}, input.options());
         group.all_gather(output, input).wait();
         return output;
       }},
      {"broadcast",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto tensor = input.clone();
         group.broadcast(tensor, group.size() - 1).wait();
         return tensor;
       }},
      {"all_to_all",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto output = torch::empty_like(input);
         group.all_to_all(output, input).wait();
         return output;
       }},
      {"reduce_to_owners",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto range = input.clone();
         group.reduce_to_owners(range, uneven_owners(group, range.numel())).wait();
         return range;
       }},
      {"gather_from_owners",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto range = input.clone();
         group.gather_from_owners(range, uneven_owners(group, range.numel())).wait();
         return range;
       }},
      {"send and receive",
       [](const ProcessGroup& group, const at::Tensor& input) {
         auto output = torch::empty_like(input);
         auto sent = group.send(input, (group.rank() + 1) % group.size(), 3);
         auto received = group.receive(output, (group.rank() + group.size() - 1) % group.size(), 3);
         received.wait();
         sent.wait();
         return output;
       }},
  };
}

TEST_P(OnSharedGpu, CollectivesGiveTheBitsOfCpuTensors) {
  run([](ProcessGroup& group) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
      for (const std::int64_t part : {1, 1000, 400'003}) {
        const auto input = draw(group, part * group.size(), dtype);
        for (const auto& [name, act] : acts()) {
          const auto wanted = act(group, input);
          const auto found = act(group, input.to(kGpu));
          EXPECT_TRUE(found.is_cuda());
          EXPECT_TRUE(found.cpu().equal(wanted)) << name << " of " << part << " × " << dtype;
        }
      }
    }
    EXPECT_EQ(group.backend(kGpu).empty(), false);
    EXPECT_EQ(group.backend(), "shm");
  });
}

TEST_P(OnSharedGpu, WorkWaitsInTheOrderOfStreamsAndTensorsMayBeDroppedEarly) {
  run([](ProcessGroup& group) {
    auto memory = group.allocate(4 << 20, kGpu);
    EXPECT_EQ(memory.sum().item<std::int64_t>(), 0);
    auto bucket = memory.view(at::kFloat);
    for (int step = 0; step < 50; ++step) {
      bucket.fill_(group.rank() + step);  // enqueued before the call, on the same stream
      auto work = group.all_reduce(bucket);
      {
        auto dropped = torch::full({1 << 20}, step, at::TensorOptions().device(kGpu));
        (void)group.all_reduce(dropped);
      }
      // Would be written by the call above if the allocator had reused its memory too early.
      const auto fresh = torch::zeros({1 << 20}, at::TensorOptions().device(kGpu));
      work.wait();
      const int size = group.size();
      const auto wanted = static_cast<float>(size * step + size * (size - 1) / 2);
      EXPECT_TRUE((bucket == wanted).all().item<bool>()) << "step " << step;
      EXPECT_EQ(fresh.abs().max().item<float>(), 0.0F);
    }
    auto last = group.all_reduce(bucket);
    while (!last.done()) std::this_thread::yield();
    last.synchronize();
    const auto half = group.split(group.rank() % 2, 0);
    auto tensor = torch::ones({10}, at::TensorOptions().device(kGpu));
    half.all_reduce(tensor).synchronize();
    EXPECT_EQ(tensor[0].item<float>(), static_cast<float>(half.size()));
  });
}

}  // namespace
}  // namespace lockstep
