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
  void send(std::size_t transfer);
  void add(std::size_t transfer, const Part& block);

  NetworkCall& call_;
  ExchangeData data_;
  RingPlan plan_;
  std::vector<RingTransfer> transfers_;  // of both halves
  std::vector<Network::Word> arrived_;   // by transfer
  std::vector<std::byte*> received_;     // by transfer of the reduce-scatter
  std::size_t transfer_ = 0;
  bool is_sent_ = false;   // what this transfer sends
  std::size_t added_ = 0;  // elements of this transfer
};

Ring::Ring(NetworkCall& call, ExchangeData data)
    : call_(call),
      data_(std::move(data)),
      plan_(plan_ring(data_.own, static_cast<int>(size()), data_.count,
                      kLine / bytes_of(call.call.dtype))),
      transfers_(plan_.reduce_scatter) {
  transfers_.insert(transfers_.end(), plan_.all_gather.begin(), plan_.all_gather.end());
  arrived_ = std::vector<Network::Word>(transfers_.size());
  std::size_t scratch = 0;
  for (const auto& transfer : plan_.reduce_scatter)
    scratch += bytes(transfer.receive.length) + kLine;
  call_.reduction_scratch = call_.group->borrow(scratch);
  auto* next_free = call_.reduction_scratch.data();
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    const auto& part = transfers_[i].receive;
    const bool adds = i < plan_.reduce_scatter.size();
    if (adds) {
      received_.push_back(next_free);
      next_free += (bytes(part.length) + kLine - 1) / kLine * kLine;
    }
    auto* const to = adds ? received_.back() : data_.result + bytes(part.begin);
    call_.group->expect(previous(),
                        {call_.number, kFirstTransferPart + static_cast<std::uint32_t>(i)},
                        {to, bytes(part.length)}, arrived_[i]);
  }
}

std::optional<Awaited> Ring::advance() {
  for (; transfer_ < transfers_.size(); ++transfer_) {
    const auto& part = transfers_[transfer_].receive;
    const bool adds = transfer_ < plan_.reduce_scatter.size();
    if (!std::exchange(is_sent_, true)) send(transfer_);
    const auto most = adds ? kExchangeBlockBytes / bytes_of(call_.call.dtype) : part.length;
    while (added_ < part.length) {
      const Part block{added_, std::min(most, part.length - added_)};
      const auto awaited = call_.reaches(arrived_[transfer_], bytes(block.end()), previous(),
                                         data_.ends_call && transfer_ + 1 == transfers_.size());
      if (awaited.lagging()) return awaited;
      if (adds) add(transfer_, block);
      added_ = block.end();
    }
    is_sent_ = false;
    added_ = 0;
  }
  const auto to = static_cast<std::size_t>(next());
  const auto sent = call_.reaches(call_.sent[to], call_.queued[to], next(), data_.ends_call);
  return sent.lagging() ? std::optional(sent) : std::nullopt;
}

// The first transfer sends the input, later ones send sums or results.
void Ring::send(std::size_t transfer) {
  const auto& part = transfers_[transfer].send;
  const auto* const from = transfer == 0 ? data_.input : data_.result;
  call_.send_to(next(), kFirstTransferPart + static_cast<std::uint32_t>(transfer), 0,
                {from + bytes(part.begin), bytes(part.length)});
}

void Ring::add(std::size_t transfer, const Part& block) {
  static const auto pair = TreePlan::over_ranks(2);
  const auto at = bytes(transfers_[transfer].receive.begin + block.begin);
  const bool is_last = transfer + 1 == plan_.reduce_scatter.size();
  Reduction reduction{call_.call.dtype, ReduceOp::sum};
  if (is_last && divides(call_.call.op)) {
    const bool by_weight = call_.call.op == ReduceOp::weighted_average;
    reduction.op = ReduceOp::weighted_average;
    reduction.weight = by_weight ? call_.weight : data_.num_contributions;
  }
  const std::array<const std::byte*, 2> sources{received_[transfer] + bytes(block.begin),
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
  for (int transfer = 0; transfer + 1 < size; ++transfer) {
    plan.reduce_scatter.push_back({chunk(member - transfer), chunk(member - transfer - 1)});
    plan.all_gather.push_back({chunk(member + 1 - transfer), chunk(member - transfer)});
  }
  return plan;
}

std::unique_ptr<Exchange> make_ring(NetworkCall& call, ExchangeData data) {
  return std::make_unique<Ring>(call, std::move(data));
}

}  // namespace lockstep
