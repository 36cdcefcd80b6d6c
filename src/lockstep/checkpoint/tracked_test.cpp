#include "lockstep/checkpoint/tracked.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/loading.h"
#include "lockstep/checkpoint/staging.h"

namespace lockstep {
namespace {

// `file` as a reader opens it.
SafetensorsFile written(const FileToWrite& file) {
  const auto bytes = file.extents.front().bytes;
  EXPECT_EQ(bytes.size(), file.bytes);
  return SafetensorsFile(
      FileBytes::of(file.name, std::vector<std::byte>(bytes.begin(), bytes.end())));
}

SafetensorsFile file_of(const NamedTensors& tensors) {
  Staging staging;
  const std::vector<FileToStage> files{{"test.safetensors", tensors}};
  return written(staging.stage(files).front());
}

bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  const auto a = left.contiguous();
  const auto b = right.contiguous();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.numel() == 0 ||  // its address may be null
          std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::ReLU(), torch::nn::Linear(8, 2));
}

// Saves one object and loads it into another of the same type.
void carry_over(Tracked& from, Tracked& to) {
  const auto file = file_of(from.named_tensors());
  if (const auto json = from.state_json()) to.load_state_json(*json);
  auto tensors = to.named_tensors();
  EXPECT_EQ(differences(file, tensors), std::vector<std::string>{});
  copy_into(tensors, file);
  to.load_tensors(tensors);
}

TEST(Tracked, TensorsOfEveryTypeAndShapeComeBackInPlaceBitForBit) {
  for (const auto dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
        at::kFloat, at::kDouble, at::kComplexFloat, at::kFloat8_e4m3fn, at::kUInt16}) {
    const auto bits = torch::randint(0, 2, {3, 4, 5}).to(dtype);
    const NamedTensors saved{{"plain", bits},
                             {"scalar", bits[0][0][0]},
                             {"empty", torch::empty({0, 3}, dtype)},
                             {"transposed", bits.transpose(0, 2)}};
    const auto file = file_of(saved);
    NamedTensors live;
    for (const auto& [name, tensor] : saved) live.emplace_back(name, torch::zeros_like(tensor));
    std::vector<const void*> before;
    for (const auto& [name, tensor] : live) before.push_back(tensor.const_data_ptr());
    ASSERT_TRUE(differences(file, live).empty()) << dtype;
    copy_into(live, file);
    for (std::size_t i = 0; i < saved.size(); ++i) {
      EXPECT_TRUE(same_bits(saved[i].second, live[i].second)) << dtype << " " << saved[i].first;
      EXPECT_EQ(live[i].second.const_data_ptr(), before[i]);
      EXPECT_TRUE(same_bits(read_tensor(file, saved[i].first), saved[i].second));
    }
  }
}

TEST(Tracked, LoadingNamesMissingUnknownAndDifferentTensors) {
  const auto file = file_of({{"a", torch::zeros({2})},
                             {"b", torch::zeros({2, 3})},
                             {"c", torch::zeros({2}, torch::kLong)},
                             {"old", torch::zeros({1})}});
  const auto clauses = differences(file, {{"a", torch::zeros({2})},
                                          {"b", torch::zeros({3, 2})},
                                          {"c", torch::zeros({2})},
                                          {"new", torch::zeros({1})}});
  EXPECT_EQ(clauses, (std::vector<std::string>{
                         "missing in the checkpoint: \"new\"", "only in the checkpoint: \"old\"",
                         "different: \"b\" is F32[2, 3] in the checkpoint and F32[3, 2] in this "
                         "run, \"c\" is I64[2] in the checkpoint and F32[2] in this run"}));
}

TEST(Tracked, RefusesUnsupportedTensors) {
  Staging staging;
  const std::vector<FileToStage> sparse{{"x", {{"s", torch::zeros({2, 2}).to_sparse()}}}};
  EXPECT_THROW((void)staging.stage(sparse), UsageError);
  const std::vector<FileToStage> complex{{"x", {{"z", torch::zeros({2}, at::kComplexDouble)}}}};
  EXPECT_THROW((void)staging.stage(complex), UsageError);
}

TEST(Tracked, StagingIsReusedAndKeepsItsCopyWhenTheTensorsChange) {
  Staging staging;
  const auto tensor = torch::arange(100'000, torch::kFloat);
  const auto before = tensor.clone();
  const std::vector<FileToStage> files{{"x", {{"t", tensor}}}};
  const auto staged = staging.stage(files);
  const auto capacity = staging.capacity();
  const auto* const memory = staged.front().extents.front().bytes.data();
  tensor.fill_(7);
  EXPECT_TRUE(same_bits(read_tensor(written(staged.front()), "t"), before));
  EXPECT_EQ(staging.stage(files).front().extents.front().bytes.data(), memory);
  EXPECT_EQ(staging.capacity(), capacity);
}

TEST(Tracked, AModuleHasItsParametersAndBuffersByName) {
  torch::manual_seed(1);
  auto net = make_net();
  (void)net->forward(torch::randn({16, 4}));  // changes the running statistics
  auto other = make_net();
  const auto from = tracked(net);
  const auto to = tracked(*other);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : from->named_tensors()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "3.weight",
                                             "3.bias", "1.running_mean", "1.running_var",
                                             "1.num_batches_tracked"}));
  carry_over(*from, *to);
  const auto theirs = to->named_tensors();
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    EXPECT_TRUE(same_bits(from->named_tensors()[i].second, theirs[i].second)) << names[i];
  }
}

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(torch::nn::Sequential&)>;

void train(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    net->forward(torch::sin(torch::arange(64) + i).view({16, 4})).square().mean().backward();
    optimizer.step();
  }
}

// A new optimizer with other options continues from the saved state exactly as the old one.
void expect_continues(const MakeOptimizer& make, const MakeOptimizer& make_other) {
  torch::manual_seed(2);
  auto net = make_net();
  const auto optimizer = make(net);
  train(net, *optimizer, 3);
  auto copy = make_net();
  const auto other = make_other(copy);
  carry_over(*tracked(net), *tracked(copy));
  carry_over(*track_optimizer(*optimizer), *track_optimizer(*other));
  EXPECT_EQ(track_optimizer(*other)->state_json(), track_optimizer(*optimizer)->state_json());
  train(net, *optimizer, 3);
  train(copy, *other, 3);
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(net->parameters()[i], copy->parameters()[i])) << "parameter " << i;
  }
}

TEST(Tracked, OptimizersContinueWithTheirOptionsStepsAndMomenta) {
  expect_continues(
      [](auto& net) {
        return std::make_unique<torch::optim::SGD>(
            net->parameters(),
            torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true));
      },
      [](auto& net) { return std::make_unique<torch::optim::SGD>(net->parameters(), 0.5); });
  expect_continues(
      [](auto& net) {
        return std::make_unique<torch::optim::Adam>(
            net->parameters(), torch::optim::AdamOptions(0.01).betas({0.8, 0.95}).amsgrad(true));
      },
      [](auto& net) { return std::make_unique<torch::optim::Adam>(net->parameters()); });
  expect_continues(
      [](auto& net) {
        return std::make_unique<torch::optim::AdamW>(
            net->parameters(),
            torch::optim::AdamWOptions(0.01).betas({0.85, 0.97}).weight_decay(0.3).eps(1e-6));
      },
      [](auto& net) { return std::make_unique<torch::optim::AdamW>(net->parameters()); });
}

TEST(Tracked, GroupsOfAnOptimizerKeepTheirOwnOptionsAndMustBeTheSame) {
  torch::manual_seed(3);
  auto net = make_net();
  const auto make = [&](double first, double second) {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(net[0]->parameters());
    groups.emplace_back(net[3]->parameters());
    groups[0].set_options(std::make_unique<torch::optim::AdamWOptions>(first));
    groups[1].set_options(std::make_unique<torch::optim::AdamWOptions>(second));
    return torch::optim::AdamW(std::move(groups), torch::optim::AdamWOptions(1));
  };
  auto saved = make(0.1, 0.2);
  auto loaded = make(0.3, 0.4);
  track_optimizer(loaded)->load_state_json(*track_optimizer(saved)->state_json());
  const auto lr = [&](std::size_t group) {
    return static_cast<torch::optim::AdamWOptions&>(loaded.param_groups()[group].options()).lr();
  };
  EXPECT_EQ(lr(0), 0.1);
  EXPECT_EQ(lr(1), 0.2);

  torch::optim::AdamW one_group(net->parameters());
  torch::optim::SGD another(net->parameters(), 0.1);
  const auto json = *track_optimizer(saved)->state_json();
  EXPECT_THROW(track_optimizer(one_group)->load_state_json(json), UsageError);
  EXPECT_THROW(track_optimizer(another)->load_state_json(json), UsageError);
  EXPECT_THROW(track_optimizer(loaded)->load_state_json("{}"), UsageError);
  torch::optim::RMSprop unknown(net->parameters());
  EXPECT_THROW((void)track_optimizer(unknown), UsageError);
}

TEST(Tracked, AGeneratorContinuesItsSequence) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  (void)torch::randn({7}, generator);
  auto other = at::make_generator<at::CPUGeneratorImpl>(6);
  const auto from = tracked(generator);
  const auto to = tracked(other);
  EXPECT_TRUE(from->is_per_rank());
  carry_over(*from, *to);
  EXPECT_TRUE(same_bits(torch::randn({9}, generator), torch::randn({9}, other)));
}

// The interface that types of the rooms train and data offer.
struct WarmUp {
  std::string state_json() const { return std::to_string(step); }
  void load_state_json(std::string_view json) { step = std::stoi(std::string(json)); }
  int step = 0;
};
struct Average {
  NamedTensors named_tensors() { return {{"mean", mean}}; }
  at::Tensor mean = torch::zeros({3});
};

TEST(Tracked, AcceptsAnyTypeWithNamedTensorsOrAJsonValue) {
  WarmUp saved{5};
  WarmUp loaded;
  carry_over(*tracked(saved), *tracked(loaded));
  EXPECT_EQ(loaded.step, 5);
  Average average;
  Average other;
  average.mean += 2;
  carry_over(*tracked(average), *tracked(other));
  EXPECT_TRUE(same_bits(other.mean, torch::full({3}, 2.0F)));
  EXPECT_FALSE(tracked(average)->state_json());
}

}  // namespace
}  // namespace lockstep
