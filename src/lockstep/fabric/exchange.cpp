// Doubling and halving (exchange_plan.h).
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/fabric/exchange_internal.h"
#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/fabric/ring.h"

namespace lockstep {
namespace {

constexpr std::size_t kLine = 64;
// Sums of a host's inputs are computed while fewer bytes than these wait for the network: they are
// sent while they are in the cache, and results do not wait behind all of them.
constexpr std::size_t kMostWaitingBytes = 1U << 20;

Part overlap_of(const Part& a, const Part& b) {
  const auto begin = std::max(a.begin, b.begin);
  const auto end = std::min(a.end(), b.end());
  return begin < end ? Part{begin, end - begin} : Part{};
}

// The elements that `rank` keeps.
Part wanted_by(int rank, const Call& call, std::size_t count) {
  if (call.kind == Collective::reduce) return rank == call.root ? Part{0, count} : Part{};
  if (call.kind != Collective::reduce_scatter) return {0, count};
  const auto piece = static_cast<std::size_t>(call.count);
  return {static_cast<std::size_t>(rank) * piece, piece};
}

class TreeExchange final : public Exchange {
 public:
  TreeExchange(NetworkCall& call, ExchangeData data, bool is_doubling);
  [[nodiscard]] std::optional<Awaited> advance() override;

 private:
  // Elements somewhere in memory.
  struct Elements {
    std::byte* start = nullptr;  // of the first one
    Part which = {};
    DType dtype = DType::float32;

    [[nodiscard]] std::byte* at(std::size_t element) const noexcept {
      return start + (element - which.begin) * bytes_of(dtype);
    }
  };
  struct Operation {
    int peer = 0;  // a rank of the group
    std::uint32_t part = 0;
    Part send = {};
    bool sends_results = false;
    Elements received = {};     // where they arrive; in the dtype in which they travel
    bool is_result = false;     // they are final
    LeafInterval members = {};  // whose sums are received
    bool replaces = false;
    std::byte* wide = nullptr;  // for sums of inputs that have a narrower dtype
  };

  // Whether results arrive in their final memory. In doubling they must not: that may be the memory
  // of the input, which other members have combined, but perhaps not yet this one.
  [[nodiscard]] static bool is_in_place(const Operation& operation) noexcept {
    return operation.is_result && !operation.replaces;
  }
  void add_transfers(const ExchangePlan& plan);
  void add_returns(const ExchangePlan& plan);
  void add_deliveries();
  void assign_memory();
  void begin(const Operation& operation);
  // Send and combine what can be sent and combined; return what they await then, nullopt at their
  // end.
  [[nodiscard]] std::optional<Awaited> move(const Operation& operation);
  [[nodiscard]] std::optional<Awaited> send_fresh_input(const Operation& operation);
  void send_result(const Operation& operation, const Part& block);
  // What must happen before `block` can be combined.
  [[nodiscard]] std::optional<Awaited> blocker_of(const Operation& operation, const Part& block);
  void combine_fresh(const Operation& operation, const Part& block);
  void combine(const Operation& operation, const Part& block, const std::byte* own);
  void finish(const Operation& operation);
  void keep_own_piece();
  [[nodiscard]] bool is_whole(const LeafInterval& members) const noexcept {
    return members.end - members.begin == static_cast<std::int64_t>(data_.members.size());
  }
  [[nodiscard]] const Call& made() const noexcept { return call_.call; }
  [[nodiscard]] DType sum_dtype() const noexcept { return partial_dtype(made().dtype); }

  NetworkCall& call_;
  ExchangeData data_;
  bool is_doubling_;
  std::vector<Operation> operations_;
  std::vector<Network::Word> arrived_;  // by operation, in bytes
  std::size_t last_send_ = 0;           // no operation from here on sends
  std::size_t first_return_ = 0;        // operation that sends results, as they are combined; or 0
  Elements results_;
  // The state.
  Elements sums_;
  LeafInterval summed_;   // the members in sums_
  std::size_t next_ = 0;  // operation
  bool is_begun_ = false;
  Part to_compute_ = {};              // input that this operation sends, not computed yet
  std::size_t combined_ = 0;          // elements of this operation
  std::size_t waited_for_ = 0;        // members whose data have been sent
  std::optional<int> input_goes_to_;  // the peer, if results replace the input that it gets
};

TreeExchange::TreeExchange(NetworkCall& call, ExchangeData data, bool is_doubling)
    : call_(call), data_(std::move(data)), is_doubling_(is_doubling) {
  const auto size = static_cast<int>(data_.members.size());
  const auto alignment = kLine / bytes_of(made().dtype);
  const auto plan = is_doubling_ ? plan_doubling(data_.own, size, data_.count)
                                 : plan_halving(data_.own, size, data_.count, alignment);
  results_ = {data_.result, data_.result == nullptr ? plan.owned : Part{0, data_.count},
              made().dtype};
  // Never written.
  sums_ = {const_cast<std::byte*>(data_.input), {0, data_.count}, data_.input_dtype};
  summed_ = {data_.own, data_.own + 1};
  add_transfers(plan);
  if (!is_doubling_ && made().kind == Collective::all_reduce) {
    if (!plan.transfers.empty() && plan.transfers.back().receive.length > 0) {
      first_return_ = operations_.size();
    }
    add_returns(plan);
  }
  if (!is_doubling_ && made().kind != Collective::all_reduce) add_deliveries();
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    if (operations_[i].send.length > 0) last_send_ = i + 1;
  }
  arrived_ = std::vector<Network::Word>(operations_.size());
  assign_memory();
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const auto& each = operations_[i];
    call_.group->expect(
        each.peer, {call_.number, each.part},
        {each.received.start, each.received.which.length * bytes_of(each.received.dtype)},
        arrived_[i]);
  }
}

void TreeExchange::add_transfers(const ExchangePlan& plan) {
  for (const auto& transfer : plan.transfers) {
    Operation operation{.peer = data_.members[static_cast<std::size_t>(transfer.peer)],
                        .part = kFirstTransferPart + transfer.tag,
                        .send = transfer.send,
                        .sends_results = transfer.send.length > 0 && is_whole(transfer.sent),
                        .is_result = transfer.replaces && is_whole(transfer.received),
                        .members = transfer.received,
                        .replaces = transfer.replaces};
    const bool is_input = transfer.received.end - transfer.received.begin == 1;
    operation.received = {nullptr, transfer.receive,
                          operation.is_result ? made().dtype
                          : is_input          ? data_.input_dtype
                                              : sum_dtype()};
    operations_.push_back(operation);
  }
}

// The results return as the sums came.
void TreeExchange::add_returns(const ExchangePlan& plan) {
  for (auto transfer = plan.transfers.rbegin(); transfer != plan.transfers.rend(); ++transfer) {
    operations_.push_back({.peer = data_.members[static_cast<std::size_t>(transfer->peer)],
                           .part = kFirstReturnPart + transfer->tag,
                           .send = transfer->receive,
                           .sends_results = true,
                           .received = {nullptr, transfer->send, made().dtype},
                           .is_result = true});
  }
}

// Each owner sends the elements that a rank keeps to that rank.
void TreeExchange::add_deliveries() {
  const auto size = static_cast<int>(data_.members.size());
  const auto alignment = kLine / bytes_of(made().dtype);
  const auto owned = [&](int member) {
    return owned_after_halving(member, size, data_.count, alignment);
  };
  const auto wanted = [&](int member) {
    return wanted_by(data_.members[static_cast<std::size_t>(member)], made(), data_.count);
  };
  for (int i = 1; i < size; ++i) {
    const int to = (data_.own + i) % size;  // members begin with different ones
    const auto part = overlap_of(owned(data_.own), wanted(to));
    if (part.length == 0) continue;
    operations_.push_back({.peer = data_.members[static_cast<std::size_t>(to)],
                           .part = kDeliveryPart,
                           .send = part,
                           .sends_results = true,
                           .received = {nullptr, {}, made().dtype},
                           .is_result = true});
  }
  for (int from = 0; from < size; ++from) {
    const auto part = overlap_of(owned(from), wanted(data_.own));
    if (from == data_.own || part.length == 0) continue;
    operations_.push_back({.peer = data_.members[static_cast<std::size_t>(from)],
                           .part = kDeliveryPart,
                           .received = {nullptr, part, made().dtype},
                           .is_result = true});
  }
}

// Finds memory for what is received and computed.
void TreeExchange::assign_memory() {
  const bool is_narrow = data_.input_dtype != sum_dtype();
  const auto round = [](std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  const auto bytes_of_wide = [&](const Operation& each) {
    const bool from_inputs = is_narrow && !each.replaces && !each.is_result;
    return from_inputs ? round(each.received.which.length * bytes_of(sum_dtype())) : 0;
  };
  const auto bytes_of_received = [&](const Operation& each) {
    return is_in_place(each) ? 0
                             : round(each.received.which.length * bytes_of(each.received.dtype));
  };
  std::size_t bytes = 0;
  if (data_.result == nullptr) bytes = round(results_.which.length * bytes_of(made().dtype));
  for (const auto& each : operations_) bytes += bytes_of_received(each) + bytes_of_wide(each);
  call_.reduction_scratch = call_.group->borrow(bytes);
  auto* next = call_.reduction_scratch.data();
  if (data_.result == nullptr) {
    results_.start =
        std::exchange(next, next + round(results_.which.length * bytes_of(made().dtype)));
  }
  for (auto& each : operations_) {
    const auto& which = each.received.which;
    if (!is_in_place(each)) {
      each.received.start = std::exchange(next, next + bytes_of_received(each));
      each.wide = std::exchange(next, next + bytes_of_wide(each));
    } else if (each.part == kDeliveryPart && which.length > 0) {
      const auto wanted = wanted_by(call_.group->rank(), made(), data_.count);
      each.received.start =
          made().output.data() + (which.begin - wanted.begin) * bytes_of(made().dtype);
    } else if (which.length > 0) {
      each.received.start = results_.at(which.begin);
    }
  }
}

std::optional<Awaited> TreeExchange::advance() {
  for (; next_ < operations_.size(); ++next_) {
    const auto& operation = operations_[next_];
    if (!std::exchange(is_begun_, true)) begin(operation);
    if (auto awaited = move(operation)) return awaited;
    finish(operation);
    is_begun_ = false;
    combined_ = 0;
  }
  for (; waited_for_ < data_.members.size(); ++waited_for_) {
    const int other = data_.members[waited_for_];
    const auto index = static_cast<std::size_t>(other);
    auto sent = call_.reaches(call_.sent[index], call_.queued[index], other, data_.ends_call);
    if (sent.lagging()) return sent;
  }
  keep_own_piece();  // may write over the input, which has been sent
  return std::nullopt;
}

std::optional<Awaited> TreeExchange::move(const Operation& operation) {
  const auto& received = operation.received;
  const bool returns = first_return_ > 0 && next_ + 1 == first_return_;
  const auto most = operation.is_result ? received.which.length
                                        : (returns ? call_.block_bytes : kExchangeBlockBytes) /
                                              bytes_of(received.dtype);
  while (true) {
    const auto full = send_fresh_input(operation);
    if (combined_ == received.which.length) return full;
    const Part block{received.which.begin + combined_,
                     std::min(most, received.which.length - combined_)};
    // The network receives while this rank waits for room, but sends no input that is not computed.
    if (auto awaited = blocker_of(operation, block)) return full ? full : awaited;
    if (!operation.is_result && !operation.replaces) combine_fresh(operation, block);
    if (returns) send_result(operations_[first_return_], block);
    combined_ += block.length;
  }
}

void TreeExchange::send_result(const Operation& operation, const Part& block) {
  const auto width = bytes_of(results_.dtype);
  call_.send_to(operation.peer, operation.part, (block.begin - operation.send.begin) * width,
                {results_.at(block.begin), block.length * width});
}

std::optional<Awaited> TreeExchange::send_fresh_input(const Operation& operation) {
  const auto width = bytes_of(sums_.dtype);
  const auto peer = static_cast<std::size_t>(operation.peer);
  while (to_compute_.length > 0) {
    const auto queued = call_.queued[peer];
    const auto room = call_.reaches(call_.sent[peer],
                                    queued < kMostWaitingBytes ? 0 : queued - kMostWaitingBytes + 1,
                                    operation.peer);
    if (room.lagging() && !is_doubling_) return room;
    const Part block{to_compute_.begin, std::min(call_.block_bytes / width, to_compute_.length)};
    const auto* const start = data_.prepare(block, ExchangeData::Use::again);
    call_.send_to(operation.peer, operation.part, (block.begin - operation.send.begin) * width,
                  {start, block.length * width});
    to_compute_ = {block.end(), to_compute_.length - block.length};
    // That was the whole input, with which the sums of others are combined.
    if (is_doubling_ && to_compute_.length == 0) data_.prepare = nullptr;
  }
  return std::nullopt;
}

void TreeExchange::begin(const Operation& operation) {
  if (operation.send.length == 0 || (first_return_ > 0 && next_ == first_return_)) return;
  if (data_.prepare && sums_.start == data_.input) {
    to_compute_ = operation.send;
    return;
  }
  const auto& from = operation.sends_results ? results_ : sums_;
  const auto* const start = from.at(operation.send.begin);
  const bool is_replaced = is_doubling_ && from.start == data_.input && data_.result == data_.input;
  if (is_replaced) input_goes_to_ = operation.peer;
  call_.send_to(operation.peer, operation.part, 0,
                {start, operation.send.length * bytes_of(from.dtype)});
}

std::optional<Awaited> TreeExchange::blocker_of(const Operation& operation, const Part& block) {
  const auto until = block.end() - operation.received.which.begin;
  const auto arrived = call_.reaches(arrived_[next_], until * bytes_of(operation.received.dtype),
                                     operation.peer, data_.ends_call && next_ + 1 >= last_send_);
  if (arrived.lagging()) return arrived;
  if (!input_goes_to_ || operation.is_result) return std::nullopt;
  // Combining the last sums writes results over the input, which must have been sent: all of it,
  // because with several connections a later part may be sent before an earlier one.
  const auto to = static_cast<std::size_t>(*input_goes_to_);
  const auto sent = call_.reaches(call_.sent[to], call_.queued[to], *input_goes_to_);
  if (sent.lagging()) return sent;
  return std::nullopt;
}

// Combines a block with this rank's sums, or with its input, which may not have been computed yet.
void TreeExchange::combine_fresh(const Operation& operation, const Part& block) {
  if (!data_.prepare || sums_.start != data_.input) {
    return combine(operation, block, sums_.at(block.begin));
  }
  const auto most = kPreparedBytes / bytes_of(sums_.dtype);
  for (std::size_t done = 0; done < block.length; done += most) {
    const Part part{block.begin + done, std::min(most, block.length - done)};
    combine(operation, part, data_.prepare(part, ExchangeData::Use::once));
  }
}

void TreeExchange::combine(const Operation& operation, const Part& block, const std::byte* own) {
  static const auto pair = TreePlan::over_ranks(2);
  static const auto one = TreePlan::over_ranks(1);
  const auto count = block.length;
  const bool received_first = operation.members.begin < summed_.begin;
  const Reduction reduction{made().dtype, made().op, call_.weight};
  const bool is_last =
      is_whole({0, summed_.end - summed_.begin + operation.members.end - operation.members.begin});
  const std::byte* other = operation.received.at(block.begin);
  auto own_dtype = sums_.dtype;
  auto other_dtype = operation.received.dtype;
  auto* const wide =
      operation.wide == nullptr
          ? nullptr
          : operation.wide + (block.begin - operation.received.which.begin) * bytes_of(sum_dtype());
  const auto ordered = [&] {
    return received_first ? std::array{other, own} : std::array{own, other};
  };
  if (own_dtype != sum_dtype() && other_dtype != sum_dtype()) {  // two inputs of 16 bits
    if (!is_last) return reduce_to_partial(made().dtype, made().op, pair, ordered(), wide, count);
    auto* const to = results_.at(block.begin);
    return reduce(reduction, pair, ordered(), std::span(&to, 1), count);
  }
  // At most one of them is an input of 16 bits.
  if (own_dtype != sum_dtype()) {
    reduce_to_partial(made().dtype, made().op, one, std::span(&own, 1), wide, count);
    own = wide;
  } else if (other_dtype != sum_dtype()) {
    reduce_to_partial(made().dtype, made().op, one, std::span(&other, 1), wide, count);
    other = wide;
  }
  if (is_last) {
    return reduce_partials(reduction, pair, data_.num_contributions, ordered(),
                           results_.at(block.begin), count);
  }
  auto* const to = own_dtype != other_dtype ? wide : operation.received.at(block.begin);
  reduce_to_partial(sum_dtype(), made().op, pair, ordered(), to, count);
}

void TreeExchange::finish(const Operation& operation) {
  const auto& received = operation.received;
  if (operation.is_result && operation.replaces) {
    std::memcpy(results_.start, received.start, received.which.length * bytes_of(received.dtype));
  }
  if (operation.is_result || received.which.length == 0) return;
  const bool is_wide = sums_.dtype != sum_dtype() || received.dtype != sum_dtype();
  sums_ = {is_wide && !operation.replaces ? operation.wide : received.start, received.which,
           sum_dtype()};
  summed_ = operation.replaces ? operation.members
                               : LeafInterval{std::min(summed_.begin, operation.members.begin),
                                              std::max(summed_.end, operation.members.end)};
}

// Copies what this rank keeps of its own results, unless they are already in the output.
void TreeExchange::keep_own_piece() {
  if (data_.result != nullptr) return;
  const auto wanted = wanted_by(call_.group->rank(), made(), data_.count);
  const auto part = overlap_of(results_.which, wanted);
  if (part.length == 0) return;
  std::memcpy(made().output.data() + (part.begin - wanted.begin) * bytes_of(made().dtype),
              results_.at(part.begin), part.length * bytes_of(made().dtype));
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(ExchangeAlgorithm algorithm, NetworkCall& call,
                                        ExchangeData data) {
  call.transfers = true;
  if (algorithm == ExchangeAlgorithm::ring) return make_ring(call, std::move(data));
  return std::make_unique<TreeExchange>(call, std::move(data),
                                        algorithm == ExchangeAlgorithm::doubling);
}

ExchangeData whole_data_of(const NetworkCall& call) {
  const auto& made = call.call;
  ExchangeData data{.own = call.group->rank(), .input_dtype = made.dtype};
  for (int rank = 0; rank < call.group->size(); ++rank) data.members.push_back(rank);
  data.input = made.input.data();
  data.count = made.input.size() / bytes_of(made.dtype);
  const bool keeps_all = made.kind == Collective::all_reduce ||
                         (made.kind == Collective::reduce && made.root == data.own);
  data.result = keeps_all ? made.output.data() : nullptr;
  data.num_contributions = call.group->size();
  return data;
}

}  // namespace lockstep
