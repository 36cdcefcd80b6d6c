#include "lockstep/fabric/ring.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/fabric/network_data_plane_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;

class Ring final : public Exchange {
 public:
  Ring(NetworkCall& call, ExchangeData data);
  [[nodiscard]] std::optional<Awaited> advance() override;

 private:
  [[nodiscard]] std::size_t size() const noexcept { return data_.members.size(); }
  [[nodiscard]] int next() const { return data_.members[(own() + 1) % size()]; }
  [[nodiscard]] int previous() const { return data_.members[(own() + size() - 1) % size()]; }
  [[nodiscard]] std::size_t own() const noexcept { return static_cast<std::size_t>(data_.own); }
  [[nodiscard]] std::size_t bytes(std::size_t elements) const noexcept {
    return elements * bytes_of(call_.call.dtype);
  }
  void send(std::size_t step);
  void add(std::size_t step, const Part& block);

  NetworkCall& call_;
  ExchangeData data_;
  RingPlan plan_;
  std::vector<RingStep> steps_;         // of both halves
  std::vector<Network::Word> arrived_;  // by step
  std::vector<std::byte*> received_;    // by step of the reduce-scatter
  std::size_t step_ = 0;
  bool is_sent_ = false;   // what this step sends
  std::size_t added_ = 0;  // elements of this step
};

Ring::Ring(NetworkCall& call, ExchangeData data)
    : call_(call),
      data_(std::move(data)),
      plan_(plan_ring(data_.own, static_cast<int>(size()), data_.count,
                      kLine / bytes_of(call.call.dtype))),
      steps_(plan_.reduce_scatter) {
  steps_.insert(steps_.end(), plan_.all_gather.begin(), plan_.all_gather.end());
  arrived_ = std::vector<Network::Word>(steps_.size());
  std::size_t scratch = 0;
  for (const auto& step : plan_.reduce_scatter) scratch += bytes(step.receive.length) + kLine;
  call_.steps_scratch = call_.group->borrow(scratch);
  auto* place = call_.steps_scratch.data();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const auto& part = steps_[i].receive;
    const bool adds = i < plan_.reduce_scatter.size();
    if (adds) {
      received_.push_back(place);
      place += (bytes(part.length) + kLine - 1) / kLine * kLine;
    }
    auto* const to = adds ? received_.back() : data_.result + bytes(part.begin);
    call_.group->expect(previous(), {call_.number, kFirstStepPart + static_cast<std::uint32_t>(i)},
                        {to, bytes(part.length)}, arrived_[i]);
  }
}

std::optional<Awaited> Ring::advance() {
  for (; step_ < steps_.size(); ++step_) {
    const auto& part = steps_[step_].receive;
    const bool adds = step_ < plan_.reduce_scatter.size();
    if (!std::exchange(is_sent_, true)) send(step_);
    const auto most = adds ? kExchangeBlockBytes / bytes_of(call_.call.dtype) : part.length;
    while (added_ < part.length) {
      const Part block{added_, std::min(most, part.length - added_)};
      const auto awaited = call_.reaches(arrived_[step_], bytes(block.end()), previous(),
                                         data_.ends_call && step_ + 1 == steps_.size());
      if (awaited.lagging()) return awaited;
      if (adds) add(step_, block);
      added_ = block.end();
    }
    is_sent_ = false;
    added_ = 0;
  }
  const auto to = static_cast<std::size_t>(next());
  const auto sent = call_.reaches(call_.sent[to], call_.queued[to], next(), data_.ends_call);
  return sent.lagging() ? std::optional(sent) : std::nullopt;
}

// The first step sends the input, later ones send sums or results.
void Ring::send(std::size_t step) {
  const auto& part = steps_[step].send;
  const auto* const from = step == 0 ? data_.input : data_.result;
  call_.send_to(next(), kFirstStepPart + static_cast<std::uint32_t>(step), 0,
                {from + bytes(part.begin), bytes(part.length)});
}

void Ring::add(std::size_t step, const Part& block) {
  static const auto pair = TreePlan::over_ranks(2);
  const auto at = bytes(steps_[step].receive.begin + block.begin);
  const bool is_last = step + 1 == plan_.reduce_scatter.size();
  Reduction reduction{call_.call.dtype, ReduceOp::sum};
  if (is_last && divides(call_.call.op)) {
    const bool by_weight = call_.call.op == ReduceOp::weighted_average;
    reduction.op = ReduceOp::weighted_average;
    reduction.weight = by_weight ? call_.weight : data_.num_contributions;
  }
  const std::array<const std::byte*, 2> sources{received_[step] + bytes(block.begin),
                                                data_.input + at};
  auto* const to = data_.result + at;
  reduce(reduction, pair, sources, std::span(&to, 1), block.length);
}

}  // namespace

RingPlan plan_ring(int member, int size, std::size_t count, std::size_t alignment) {
  const auto chunk = [&](int index) {
    const auto whole = static_cast<std::size_t>((index % size + size) % size);
    return part_of(count, whole, static_cast<std::size_t>(size), alignment);
  };
  RingPlan plan;
  for (int step = 0; step + 1 < size; ++step) {
    plan.reduce_scatter.push_back({chunk(member - step), chunk(member - step - 1)});
    plan.all_gather.push_back({chunk(member + 1 - step), chunk(member - step)});
  }
  return plan;
}

std::unique_ptr<Exchange> make_ring(NetworkCall& call, ExchangeData data) {
  return std::make_unique<Ring>(call, std::move(data));
}

}  // namespace lockstep
