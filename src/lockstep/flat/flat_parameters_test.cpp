#include "lockstep/flat/flat_parameters.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collectives/test_groups_internal.h"
#include "lockstep/rendezvous/test_world_internal.h"
#include "lockstep/testing/threads.h"

namespace lockstep {
namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int width = 5) {
    register_module("first", first = torch::nn::Linear(3, width));
    register_module("conv", conv = torch::nn::Conv2d(3, 2, 3));
    register_module("tied", tied);
    tied->register_parameter("weight", first->weight);
    scale = register_parameter("scale", torch::ones({2}, torch::kDouble));
  }
  torch::nn::Linear first{nullptr};
  torch::nn::Conv2d conv{nullptr};
  torch::nn::ModuleHolder<torch::nn::Module> tied{std::make_shared<torch::nn::Module>()};
  at::Tensor scale;
};

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FlatParameters, MoveTheMemoryAndLeaveTheTensors) {
  with_groups(2, [](ProcessGroup& group) {
    NetImpl net;
    net.conv->weight.set_data(net.conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    const auto strides = net.conv->weight.strides().vec();
    const auto before = net.conv->weight.clone();
    const auto* identity = net.first->weight.unsafeGetTensorImpl();
    FlatParameters flat(net, group);
    EXPECT_EQ(flat.parameters().size(), 5U) << "a tied parameter counts once";
    EXPECT_EQ(flat.num_segments(), 2);
    EXPECT_EQ(net.first->weight.unsafeGetTensorImpl(), identity);
    EXPECT_TRUE(torch::equal(net.conv->weight, before));
    EXPECT_EQ(net.conv->weight.strides().vec(), strides);
    for (const auto& parameter : flat.parameters()) {
      EXPECT_TRUE(parameter.tensor.is_alias_of(flat.values(parameter.slot.segment)));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.tensor.data_ptr()) % 64, 0U);
      EXPECT_TRUE(parameter.tensor.is_leaf());
    }
    EXPECT_EQ(message_of([&] { flat.expect_in_place(); }), "");
  });
}

TEST(FlatParameters, ListTheRangesWithGradients) {
  with_groups(1, [](ProcessGroup& group) {
    NetImpl net;
    FlatParameters flat(net, group);
    EXPECT_TRUE(flat.present_gradients().empty());
    net.first->forward(torch::ones({1, 3})).sum().backward();
    const auto ranges = flat.present_gradients();
    ASSERT_EQ(ranges.size(), 1U);
    EXPECT_EQ(ranges[0].parameters.size(), 2U);
    const auto range = flat.gradients(ranges[0].segment).slice(0, ranges[0].begin, ranges[0].end);
    EXPECT_EQ(range.sum().item<float>(), 15 + 5) << "weights of three ones, biases, zero padding";
  });
}

TEST(FlatParameters, HoldSeveralGradientBuffers) {
  with_groups(2, [](ProcessGroup& group) {
    NetImpl net;
    FlatParameters flat(net, group, {.gradient_buffers = 3});
    for (int buffer = 0; buffer < 3; ++buffer) {
      flat.use_gradient_buffer(buffer);
      EXPECT_TRUE(flat.present_gradients().empty());
      (net.first->forward(torch::ones({1, 3})).sum() * (buffer + 1)).backward();
      EXPECT_TRUE(net.first->bias.grad().is_alias_of(flat.gradients(0, buffer)));
    }
    for (int buffer = 0; buffer < 3; ++buffer) {
      flat.use_gradient_buffer(buffer);
      EXPECT_EQ(flat.gradients(0).sum().item<float>(), (15 + 5) * (buffer + 1));
      const auto& last = flat.parameters().back();
      EXPECT_TRUE(last.gradient.is_alias_of(flat.gradients(last.slot.segment)));
      EXPECT_EQ(flat.present_gradients().size(), 1U);
    }
    flat.adopt();
    EXPECT_EQ(flat.gradient_buffer(), 0);
    EXPECT_EQ(flat.gradients(0).sum().item<float>(), (15 + 5) * 3) << "the value of `.grad`";
    EXPECT_NE(message_of([&] { flat.use_gradient_buffer(3); }).find("no gradient buffer 3"),
              std::string::npos);
  });
}

TEST(FlatParameters, NameTheFirstParameterThatDiffersBetweenRanks) {
  with_groups(3, [](ProcessGroup& group) {
    NetImpl net(group.rank() == 2 ? 6 : 5);
    const auto said = message_of([&] { FlatParameters flat(net, group); });
    EXPECT_NE(said.find("first.weight"), std::string::npos) << said;
    EXPECT_NE(said.find("rank 2"), std::string::npos) << said;
    EXPECT_NE(said.find("[6, 3]"), std::string::npos) << said;
  });
}

TEST(FlatParameters, NameMovedParametersAndAdoptThem) {
  with_groups(2, [](ProcessGroup& group) {
    NetImpl net;
    FlatParameters flat(net, group);
    net.first->weight.set_data(torch::full({5, 3}, 4.0));
    net.conv = net.replace_module("conv", torch::nn::Conv2d(3, 2, 3));
    const auto said = message_of([&] { flat.expect_in_place(); });
    EXPECT_NE(said.find("first.weight, conv.weight, conv.bias"), std::string::npos) << said;
    EXPECT_NE(said.find("adopt()"), std::string::npos) << said;
    flat.adopt();
    EXPECT_EQ(message_of([&] { flat.expect_in_place(); }), "");
    EXPECT_TRUE(torch::equal(net.first->weight, torch::full({5, 3}, 4.0)));
    net.first->weight.set_data(torch::full({7, 3}, 4.0));
    EXPECT_NE(message_of([&] { flat.adopt(); }).find("[7, 3]"), std::string::npos);
  });
}

TEST(FlatParameters, MoveToAnotherGroup) {
  with_groups(2, [](ProcessGroup& group) {
    NetImpl net;
    FlatParameters flat(net, group);
    net.first->forward(torch::ones({1, 3})).sum().backward();
    const auto value = net.first->weight.clone();
    const auto gradient = net.first->weight.grad().clone();
    const auto* before = net.first->weight.data_ptr();
    flat.rebind(group.split(group.rank()));
    EXPECT_NE(net.first->weight.data_ptr(), before);
    EXPECT_TRUE(torch::equal(net.first->weight, value));
    EXPECT_TRUE(torch::equal(net.first->weight.grad(), gradient));
    EXPECT_TRUE(net.first->weight.grad().is_alias_of(flat.gradients(0)));
  });
}

TEST(FlatParameters, RefuseModelsWithoutFloatingPointParameters) {
  with_groups(1, [](ProcessGroup& group) {
    torch::nn::Module empty;
    EXPECT_NE(message_of([&] { FlatParameters flat(empty, group); }).find("no parameters"),
              std::string::npos);
    torch::nn::Module whole;
    whole.register_parameter("count", torch::zeros({3}, torch::kLong), /*requires_grad=*/false);
    EXPECT_NE(message_of([&] { FlatParameters flat(whole, group); }).find("buffers"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace lockstep
