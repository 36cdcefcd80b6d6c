#include "lockstep/ddp/bucket_reduction.h"

#include <ATen/ops/zeros.h>

#include <utility>

namespace lockstep {
namespace {

class AllReduceWork final : public BucketWork {
 public:
  explicit AllReduceWork(Work work) : work_(std::move(work)) {}
  void advance() override { (void)work_.done(); }
  void wait() override { work_.wait(); }
  [[nodiscard]] const GroupFlags& flags() const override { return work_.flags(); }
  [[nodiscard]] WorkTimes times() const override { return work_.times(); }

 private:
  Work work_;
};

class AllReduction final : public BucketReduction {
 public:
  explicit AllReduction(const ProcessGroup& group) : group_(group) {}

  [[nodiscard]] int num_ranks() const override { return group_.size(); }

  [[nodiscard]] std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                  const BucketCall& call) override {
    return std::make_unique<AllReduceWork>(
        group_.all_reduce(bucket, ReduceOp::weighted_average,
                          {.name = call.name, .flags = call.flags, .weight = call.weight}));
  }

  [[nodiscard]] std::vector<bool> combine_used(const std::vector<bool>& used) override {
    auto map = at::zeros({static_cast<std::int64_t>(used.size())}, at::kByte);
    auto* bytes = map.mutable_data_ptr<std::uint8_t>();
    for (std::size_t i = 0; i < used.size(); ++i) bytes[i] = used[i] ? 1 : 0;
    group_.all_reduce(map, ReduceOp::max, {.name = "used parameters"}).wait();
    return std::vector<bool>(bytes, bytes + used.size());
  }

 private:
  ProcessGroup group_;
};

}  // namespace

std::unique_ptr<BucketReduction> make_all_reduction(const ProcessGroup& group) {
  return std::make_unique<AllReduction>(group);
}

}  // namespace lockstep
