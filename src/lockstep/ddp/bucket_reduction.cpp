#include "lockstep/ddp/bucket_reduction.h"

#include <ATen/ops/zeros.h>

#include <utility>

namespace lockstep {
namespace {

class CallWork final : public BucketWork {
 public:
  explicit CallWork(Work work) : work_(std::move(work)) {}
  bool advance() override { return work_.done(); }
  void wait() override { work_.wait(); }
  [[nodiscard]] const GroupFlags& flags() const override { return work_.flags(); }
  [[nodiscard]] WorkTimes times() const override { return work_.times(); }

 private:
  Work work_;
};

class PlainReduction final : public BucketReduction {
 public:
  PlainReduction(const ProcessGroup& group, BucketOwners owners)
      : group_(group), owners_(std::move(owners)) {}

  [[nodiscard]] int num_ranks() const override { return group_.size(); }

  [[nodiscard]] std::unique_ptr<BucketWork> start(at::Tensor& bucket,
                                                  const BucketCall& call) override {
    const CallOptions options{.name = call.name, .flags = call.flags, .weight = call.weight};
    constexpr auto kAverage = ReduceOp::weighted_average;
    return std::make_unique<CallWork>(
        owners_.empty()
            ? group_.all_reduce(bucket, kAverage, options)
            : group_.reduce_to_owners(bucket, owners_[static_cast<std::size_t>(call.index)],
                                      kAverage, options));
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
  BucketOwners owners_;
};

}  // namespace

std::unique_ptr<BucketReduction> make_all_reduction(const ProcessGroup& group) {
  return std::make_unique<PlainReduction>(group, BucketOwners());
}

std::unique_ptr<BucketReduction> make_reduction_to_owners(const ProcessGroup& group,
                                                          BucketOwners owners) {
  return std::make_unique<PlainReduction>(group, std::move(owners));
}

}  // namespace lockstep
