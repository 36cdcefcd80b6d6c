// Steps that a CUDA graph replays are bit-identical to the same steps without one, and what a graph
// cannot contain is refused by name.
#include "lockstep/train/cuda_graph_step.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

namespace lockstep {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct Model {
  explicit Model(at::Device gpu, at::ScalarType dtype = at::kFloat,
                 Backend backend = Backend::automatic)
      : group(World::alone(), {.backend = backend}) {
    torch::manual_seed(3);
    net = torch::nn::Sequential(
        torch::nn::Linear(48, 200), torch::nn::LayerNorm(torch::nn::LayerNormOptions({200})),
        torch::nn::GELU(), torch::nn::Dropout(0.2), torch::nn::Linear(200, 7));
    net->to(gpu, dtype);
    ddp.emplace(*net, group);
    optimizer.emplace(ddp->flat(), AdamWOptions{.groups = {no_decay_for_biases_and_norms()}});
  }

  // A whole step, whose lr the optimizer has.
  at::Tensor step(const std::vector<at::Tensor>& batch) {
    at::Tensor loss;
    {
      const Autocast lower(at::kBFloat16, at::kCUDA);
      loss = torch::cross_entropy_loss(net->forward(batch[0]), batch[1]);
    }
    scaler.scale(loss).backward();
    scaler.unscale(ddp->flat());
    clip_grad_norm(ddp->flat(), 0.5);
    scaler.step(*optimizer);
    scaler.update();
    optimizer->zero_grad();
    return loss;
  }

  ProcessGroup group;
  torch::nn::Sequential net{nullptr};
  std::optional<Ddp> ddp;
  std::optional<AdamW> optimizer;
  GradScaler scaler{{.initial_scale = 1024, .growth_interval = 7}};
};

class CudaGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU on this machine";
  }
  std::vector<at::Tensor> batch_of(int number) const {
    torch::manual_seed(100 + number);
    auto input = torch::randn({16, 48});
    if (number % 20 == 19) input[0][0] = std::numeric_limits<float>::infinity();  // is skipped
    return {input.to(gpu), torch::randint(7, {16}).to(gpu)};
  }
  const at::Device gpu{at::kCUDA, 0};
};

class CudaGraphOver : public CudaGraph, public ::testing::WithParamInterface<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, CudaGraphOver,
                         ::testing::Values(Backend::automatic, Backend::nccl));

// NCCL needs a GPU per rank: with one rank its calls take the path of several.
TEST_P(CudaGraphOver, FiftyStepsHaveTheBitsOfTheSameStepsWithoutAGraph) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Model eager(gpu, dtype);
    Model captured(gpu, dtype, GetParam());
    const Seeds seeds(5);
    CudaGraphStep graph([&](const std::vector<at::Tensor>& batch) { return captured.step(batch); },
                        {.groups = {captured.group}});
    const auto lr = linear_warmup(10).then(cosine(40));
    for (int number = 0; number < 50; ++number) {
      auto batch = batch_of(number);
      batch[0] = batch[0].to(dtype);
      eager.optimizer->set_lr(1e-2 * lr.at(number));
      captured.optimizer->set_lr(1e-2 * lr.at(number));
      seeds.begin_step(number);
      const auto expected = eager.step(batch).detach();
      seeds.begin_step(number);
      const auto loss = graph(batch);
      const bool both_nan = expected.isnan().item<bool>() && loss.isnan().item<bool>();
      EXPECT_TRUE(both_nan || loss.equal(expected)) << "step " << number;
    }
    EXPECT_TRUE(graph.is_captured());
    for (std::size_t i = 0; i < eager.net->parameters().size(); ++i) {
      EXPECT_TRUE(captured.net->parameters()[i].equal(eager.net->parameters()[i])) << i;
    }
    EXPECT_EQ(eager.scaler.num_skipped(), 2);
    EXPECT_EQ(captured.scaler.num_skipped(), 2);
    EXPECT_EQ(captured.scaler.current_scale(), eager.scaler.current_scale());
    const auto expected = eager.optimizer->named_tensors();
    const auto state = captured.optimizer->named_tensors();
    for (std::size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(state[i].second.equal(expected[i].second)) << state[i].first;
    }
  }
}

TEST_F(CudaGraph, AnOperationThatCannotBeCapturedIsRefusedByName) {
  Model model(gpu);
  const auto on_cpu = torch::ones({3});
  const auto refusal_of = [&](const std::function<void(const at::Tensor&)>& extra) {
    CudaGraphStep graph(
        [&](const std::vector<at::Tensor>& batch) {
          auto loss = model.step(batch);
          extra(loss);
          return loss;
        },
        {.warmup = 2});
    return message_of([&] {
      for (int i = 0; i < 3; ++i) graph(batch_of(i));
    });
  };
  const auto expect_named = [](const std::string& refusal, const std::string& name) {
    EXPECT_NE(refusal.find(name), std::string::npos) << name << " is not in: " << refusal;
  };
  expect_named(refusal_of([](const at::Tensor& loss) { (void)loss.item<float>(); }),
               "aten::_local_scalar_dense");
  expect_named(refusal_of([&](const at::Tensor&) { (void)on_cpu.add(1); }), "aten::add");
  expect_named(refusal_of([&](const at::Tensor&) {
                 (void)model.net->forward(torch::zeros({1, 48}, gpu)).sum().backward();
                 model.optimizer->step(0.1);
               }),
               "set_lr");
  // The device is usable afterwards, and a correct step can be captured.
  EXPECT_EQ(refusal_of([](const at::Tensor&) {}), "");
  EXPECT_EQ(torch::ones({4}, gpu).sum().item<float>(), 4);
}

TEST_F(CudaGraph, CallsOverNcclOfAGroupThatWasNotGivenAreRefused) {
  Model model(gpu, at::kFloat, Backend::nccl);
  CudaGraphStep graph([&](const std::vector<at::Tensor>& batch) { return model.step(batch); },
                      {.warmup = 1});
  graph(batch_of(0));
  const auto message = message_of([&] { graph(batch_of(1)); });
  EXPECT_NE(message.find("CudaGraphStepOptions::groups"), std::string::npos) << message;
}

// A replay would divide by the number of samples of the capture.
TEST_F(CudaGraph, NumbersOfSamplesAreRefused) {
  const ProcessGroup group(World::alone());
  torch::nn::Linear net(48, 7);
  net->to(gpu);
  Ddp ddp(*net, group, {.normalize = Normalize::by_count});
  CudaGraphStep graph(
      [&](const std::vector<at::Tensor>& batch) {
        ddp.count(16);
        auto loss = net->forward(batch[0]).sum();
        loss.backward();
        net->zero_grad();
        return loss;
      },
      {.warmup = 1});
  const auto input = std::vector<at::Tensor>{torch::ones({16, 48}, gpu)};
  graph(input);
  const auto message = message_of([&] { graph(input); });
  EXPECT_NE(message.find("Normalize::by_count"), std::string::npos) << message;
}

TEST_F(CudaGraph, ABatchOfAnotherShapeIsRefused) {
  Model model(gpu);
  CudaGraphStep graph([&](const std::vector<at::Tensor>& batch) { return model.step(batch); });
  graph(batch_of(0));
  const auto message = message_of([&] {
    graph({torch::zeros({8, 48}, gpu), torch::zeros({8}, torch::kLong)});
  });
  EXPECT_NE(message.find("[8, 48]"), std::string::npos) << message;
  EXPECT_NE(message.find("[16, 48]"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep
