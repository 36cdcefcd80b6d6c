// PowerSGD as a whole; tests/oracle/power_sgd_agreement.py compares it with Python's hook.
#include "lockstep/ddp/power_sgd.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "lockstep/ddp/ddp.h"
#include "lockstep/ddp/test_compression_internal.h"
#include "lockstep/ddp/test_ranks_internal.h"

namespace lockstep {
namespace {

class PowerSgdOfRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PowerSgdOfRanks, ::testing::Values(1, 2, 3));

at::Tensor column(std::int64_t length, double phase) {
  return (torch::arange(length, torch::kDouble) * 0.7 + phase).sin().to(torch::kFloat);
}

// A matrix and a vector whose gradients are given.
struct GivenImpl : torch::nn::Module {
  GivenImpl() {
    register_parameter("matrix", torch::zeros({40, 60}, test_device()));
    register_parameter("vector", torch::zeros({7}, test_device()));
  }
  void set_gradients(const at::Tensor& matrix, const at::Tensor& vector) {
    const auto own = named_parameters();
    ((own["matrix"] * matrix.to(test_device())).sum() +
     (own["vector"] * vector.to(test_device())).sum())
        .backward();
  }
  at::Tensor gradient(const std::string& name) { return named_parameters()[name].grad(); }
};

std::map<std::string, at::Tensor> copy_of(const StateTensors& tensors) {
  std::map<std::string, at::Tensor> copy;
  for (const auto& [name, tensor] : tensors) copy[name] = tensor.clone();
  return copy;
}

// The sum over the ranks has rank 2, so an approximation of rank 2 is exact in the first step.
TEST_P(PowerSgdOfRanks, AMatrixOfItsRankIsExactAndVectorsAlwaysAre) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = std::make_shared<GivenImpl>();
    Ddp ddp(*net, group);
    const PowerSgd power({.rank = 2, .start_step = 0});
    ddp.set_hook(power.hook());
    const auto matrix = [](int rank) {
      return (rank + 1) * column(40, 1).outer(column(60, 2)) + column(40, 3).outer(column(60, 4));
    };
    net->set_gradients(matrix(group.rank()), torch::full({7}, group.rank()));
    auto expected = torch::zeros({40, 60});
    for (int rank = 0; rank < group.size(); ++rank) expected += matrix(rank) / group.size();
    EXPECT_TRUE(torch::allclose(net->gradient("matrix").cpu(), expected, 0, 1e-5));
    EXPECT_TRUE(is_filled(net->gradient("vector"), mean_rank(group.size()) - 1));
    EXPECT_TRUE(is_equal_on_all_ranks(flat_gradients(*net), group));
  });
}

TEST_P(PowerSgdOfRanks, LosesNothingOverManySteps) {
  for (const int rank : {1, 4}) {
    for (const std::size_t bucket_bytes : {kOneBucket, std::size_t{4000}}) {
      with_ddp_groups(GetParam(), [&](ProcessGroup& group) {
        TestNet net;
        fill(*net, 1);
        Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
        const PowerSgd power({.rank = rank, .start_step = 2, .min_ratio = 1});
        ddp.set_hook(power.hook());
        Ledger ledger(*net);
        for (int step = 0; step < 12; ++step) {
          loss_of(net, group.rank(), step).backward();
          for (int each = 0; each < group.size(); ++each) ledger.contribute(1, each, step);
          ledger.receive(*net, group.size());
          EXPECT_TRUE(is_equal_on_all_ranks(flat_gradients(*net), group));
          net->zero_grad();
        }
        ledger.expect_balance(power.rank_tensors(), group);
        EXPECT_EQ(power.step(), 12);
        if (group.size() > 1) {
          EXPECT_GE(power.rank_tensors().size(), 2U);
        }
      });
    }
  }
}

// Weights are counts here, and a rank that sits out keeps its error.
TEST_P(PowerSgdOfRanks, LosesNothingWithCountsAndRanksThatSitOut) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.normalize = Normalize::by_count});
    const PowerSgd power({.rank = 2, .start_step = 0});
    ddp.set_hook(power.hook());
    Ledger ledger(*net);
    for (int step = 0; step < 6; ++step) {
      const auto count_of = [&](int rank) {
        return group.size() > 1 && (rank + step) % 3 == 0 ? 0 : 1 + (rank + step) % 4;
      };
      int total = 0;
      for (int rank = 0; rank < group.size(); ++rank) {
        if (count_of(rank) == 0) continue;
        total += count_of(rank);
        ledger.contribute(count_of(rank), rank, step);
      }
      if (const auto count = count_of(group.rank()); count == 0) {
        ddp.sit_out();
      } else {
        ddp.count(count);
        (loss_of(net, group.rank(), step) * count).backward();
      }
      if (total > 0) ledger.receive(*net, total);
      net->zero_grad();
    }
    ledger.expect_balance(power.rank_tensors(), group);
  });
}

TEST_P(PowerSgdOfRanks, StepsBeforeTheFirstOneAreThoseOfAnAllReduce) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    TestNet plain;
    fill(*net, 1);
    fill(*plain, 1);
    Ddp ddp(*net, group);
    Ddp plain_ddp(*plain, group);
    const PowerSgd power({.rank = 1, .start_step = 3});
    ddp.set_hook(power.hook());
    for (int step = 0; step < 5; ++step) {
      loss_of(net, group.rank(), step).backward();
      loss_of(plain, group.rank(), step).backward();
      const bool equal = torch::equal(flat_gradients(*net), flat_gradients(*plain));
      EXPECT_EQ(equal, step < 3 || group.size() == 1) << step;
      net->zero_grad();
      plain->zero_grad();
    }
  });
}

// Q is zero after a step without a gradient; it must not stay so.
TEST_P(PowerSgdOfRanks, AMatrixWithoutAGradientIsZeroAndRecovers) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    const auto net = std::make_shared<GivenImpl>();
    Ddp ddp(*net, group);
    const PowerSgd power({.rank = 1, .start_step = 0});
    ddp.set_hook(power.hook());
    const auto matrix = column(40, 1).outer(column(60, 2));
    for (int step = 0; step < 5; ++step) {
      const bool empty = step == 0 || step == 2;
      net->set_gradients(empty ? torch::zeros({40, 60}) : matrix, torch::zeros({7}));
      const auto expected = empty ? torch::zeros({40, 60}) : matrix;
      EXPECT_TRUE(torch::allclose(net->gradient("matrix").cpu(), expected, 0, 1e-5)) << step;
      net->zero_grad();
    }
  });
}

TEST_P(PowerSgdOfRanks, AStepThatFailsOrIsNonFiniteLeavesTheStateUnchanged) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group, {.bucket_bytes = 4000});
    const PowerSgd power({.rank = 2, .start_step = 1});
    ddp.set_hook(power.hook());
    expect_state_survives(net, ddp, group, [&] {
      auto all = power.rank_tensors();
      for (const auto& item : power.named_tensors()) all.push_back(item);
      all.emplace_back("step", torch::tensor(power.step()));
      return all;
    });
  });
}

// Matrices of one shape in one bucket are multiplied together, in several buckets one by one.
TEST_P(PowerSgdOfRanks, BatchesChangeOnlyTheRounding) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    std::vector<at::Tensor> results;
    for (const std::size_t bucket_bytes : {kOneBucket, std::size_t{1}}) {
      TestNet net;
      fill(*net, 1);
      Ddp ddp(*net, group, {.bucket_bytes = bucket_bytes});
      const PowerSgd power({.rank = 2, .start_step = 0});
      ddp.set_hook(power.hook());
      for (int step = 0; step < 4; ++step) {
        net->zero_grad();
        loss_of(net, group.rank(), step).backward();
      }
      results.push_back(flat_gradients(*net));
    }
    const auto largest = results[0].abs().max().item<double>();
    EXPECT_TRUE(torch::allclose(results[0], results[1], 0, 1e-4 * largest));
  });
}

TEST_P(PowerSgdOfRanks, SendsTheThinMatricesOnly) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    torch::nn::Linear net(300, 200);
    Ddp ddp(*net, group, {.bucket_bytes = kOneBucket});
    const PowerSgd power({.rank = 4, .start_step = 0});
    ddp.set_hook(power.hook());
    net->forward(torch::ones({1, 300})).sum().backward();
    const auto& bucket = ddp.record().buckets.front();
    const std::int64_t sent = group.size() == 1 ? bucket.bytes : 4 * (4 * 300 + 4 * 200 + 200);
    EXPECT_EQ(bucket.wire_bytes, sent);
  });
}

// Without warm start every step has a new random Q; without error feedback nothing is kept.
TEST_P(PowerSgdOfRanks, WorksWithoutWarmStartAndWithoutErrorFeedback) {
  with_ddp_groups(GetParam(), [](ProcessGroup& group) {
    TestNet net;
    fill(*net, 1);
    Ddp ddp(*net, group);
    const PowerSgd power(
        {.rank = 2, .start_step = 0, .error_feedback = false, .warm_start = false});
    ddp.set_hook(power.hook());
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      loss_of(net, group.rank(), 0).backward();
      EXPECT_TRUE(is_equal_on_all_ranks(flat_gradients(*net), group));
      for (const auto& [name, error] : copy_of(power.rank_tensors())) {
        EXPECT_TRUE(error.eq(0).all().item<bool>()) << name;
      }
    }
  });
}

TEST(PowerSgdOptionsOf, InvalidValuesAndStatesAreRefused) {
  EXPECT_TRUE(holds(message_of([] { PowerSgd power({.rank = 0}); }), "rank is 0"));
  EXPECT_TRUE(holds(message_of([] { PowerSgd power({.start_step = -1}); }), "start_step is -1"));
  EXPECT_TRUE(holds(message_of([] { PowerSgd power({.min_ratio = 0}); }), "min_ratio is 0"));
  PowerSgd power({.rank = 2});
  EXPECT_TRUE(holds(message_of([&] { power.load_state_json(PowerSgd({.rank = 4}).state_json()); }),
                    "powersgd of rank 4"));
  EXPECT_TRUE(holds(message_of([&] { power.load_state_json(R"({"kind":"int8"})"); }), "int8"));
  EXPECT_THROW(power.load_state_json("7"), UsageError);
  power.load_state_json(PowerSgd({.rank = 2}).state_json());
}

}  // namespace
}  // namespace lockstep
