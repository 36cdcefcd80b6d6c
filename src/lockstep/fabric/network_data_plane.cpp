#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/fabric/group.h"
#include "lockstep/fabric/host_call_internal.h"
#include "lockstep/fabric/network_control_plane_internal.h"
#include "lockstep/fabric/network_data_plane_internal.h"
#include "lockstep/rendezvous/call_size.h"

namespace lockstep {
namespace {

using Kind = NetworkMessage::Kind;
constexpr std::uint32_t kMessagePart = 2;  // of a transfer; calls use all others
// Of a call, over all ranks: each of them relays the inputs of others.
constexpr std::size_t kMostRelayedBytes = 1U << 20;
constexpr std::uint64_t kMaxWaitingOffers = 16;  // messages of one rank without an answer

// Registered memory is ordinary memory, which the network reads and writes in place.
class NetworkMemory final : public RegisteredMemory {
 public:
  explicit NetworkMemory(std::size_t bytes)
      : memory_(bytes + kAlignment),
        start_((kAlignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % kAlignment) %
               kAlignment),
        bytes_(bytes) {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept override {
    return std::span(memory_).subspan(start_, bytes_);
  }

 private:
  static constexpr std::size_t kAlignment = 128;
  mutable Bytes memory_;
  std::size_t start_;
  std::size_t bytes_;
};

std::string in_words(const Message& message) {
  return fmt::format("{} × {} with tag {}", message.count, to_string(message.dtype), message.tag);
}

}  // namespace

NetworkCall::NetworkCall(std::shared_ptr<NetworkGroup> group_of_call)
    : group(std::move(group_of_call)),
      arrived(static_cast<std::size_t>(group->size())),
      results(arrived.size()),
      sent(arrived.size()),
      queued(arrived.size()) {}

NetworkCall::~NetworkCall() {
  if (!transfers) return;
  if (!done) group->forget(number);
  group->give_back(std::move(scratch));
  group->give_back(std::move(reduction_scratch));
}

NetworkMessageOperation::~NetworkMessageOperation() {
  if (transfer && !done) group->forget(*transfer);
}

NetworkDataPlane::NetworkDataPlane(std::shared_ptr<NetworkGroup> group, std::string kind,
                                   const NetworkPlaneOptions& options,
                                   std::optional<HostPlanes> host)
    : DataPlane(nullptr, group->failures()),
      group_(std::move(group)),
      kind_(std::move(kind)),
      options_(options),
      sends_(static_cast<std::size_t>(size())) {
  for (auto& sends : sends_) sends = std::make_shared<Sends>();
  options_.inline_bytes = std::min(options_.inline_bytes, kMaxInlineMessageBytes);
  if (group_->relays()) {
    options_.inline_bytes =
        std::min(options_.inline_bytes, kMostRelayedBytes / static_cast<std::size_t>(size()));
  }
  if (host) host_ = std::make_shared<HostMemory>(std::move(*host), rank());
}

std::string NetworkDataPlane::settings() const {
  return fmt::format("{}, inline_bytes {}", kind_, options_.inline_bytes);
}

// Ranks with other settings would choose other algorithms. The defaults need no comparison: a rank
// that has others makes a call that the rank with the defaults does not make.
void NetworkDataPlane::tune(Group& group) {
  const auto& own = options_.exchange;
  if (own == ExchangeOptions{} || size() == 1) return;
  const auto name = fmt::format("sums {}, link {}", own.is_fast ? "fast" : "exact",
                                own.algorithm ? to_string(*own.algorithm) : to_string(own.link));
  group.wait(*group.start({.kind = Collective::barrier, .name = name}, nullptr));
}

ExchangeAlgorithm NetworkDataPlane::algorithm_of(const Call& call,
                                                 const ExchangeSize& size) const noexcept {
  const auto& options = options_.exchange;
  const bool is_plain_sum = call.kind == Collective::all_reduce && is_floating(call.dtype) &&
                            (call.op == ReduceOp::sum || divides(call.op));
  const auto chosen = choose_exchange(size, options.link);
  if (chosen == ExchangeAlgorithm::carried) return chosen;
  if (options.is_fast && is_plain_sum) return ExchangeAlgorithm::ring;
  return options.algorithm.value_or(chosen);
}

// Each rank of a host contributes a part of its host's sums. Among a power of two of hosts, direct
// moves as many bytes and waits for the ranks of the host in every block: it is never faster.
ExchangeAlgorithm NetworkDataPlane::algorithm_of_rails(const Call& call,
                                                       std::size_t bytes) const noexcept {
  const auto& plan = host_->plan();
  if (call.kind != Collective::all_reduce || !plan.has_rails() || plan.num_hosts() == 1) {
    return ExchangeAlgorithm::direct;
  }
  const auto sum_dtype = host_->size() == 1 ? call.dtype : partial_dtype(call.dtype);
  return algorithm_of(
      call, {.members = plan.num_hosts(),
             .bytes = bytes / bytes_of(call.dtype) * bytes_of(sum_dtype) / host_->size(),
             .has_wide_sums = partial_dtype(call.dtype) != sum_dtype,
             .excludes_direct = host_->size() > 1 &&
                                std::has_single_bit(static_cast<unsigned>(plan.num_hosts()))});
}

std::optional<std::string> NetworkDataPlane::refusal_of(const Device& device) const {
  if (device.kind == DeviceKind::cpu) return std::nullopt;
  return "it supports CPU memory only; copy the tensor to the CPU";
}

std::shared_ptr<CallOperation> NetworkDataPlane::prepare(const Call& call, std::uint64_t number) {
  auto own = std::make_shared<NetworkCall>(group_);
  own->call = call;
  own->number = number;
  const auto largest = std::max(input_bytes(call, call.root, size()), call.input.size());
  own->block_bytes = block_bytes(options_.exchange.link, largest, bytes_of(call.dtype));
  // The tree of a call with leaves is not that over the ranks.
  const bool moves_between_members =
      reduces(call.kind) && !has_owners(call.kind) && !call.leaves && size() > 1;
  const auto algorithm =
      moves_between_members
          ? algorithm_of(call, {.members = size(),
                                .bytes = largest,
                                .has_wide_sums = partial_dtype(call.dtype) != call.dtype,
                                .most_carried = options_.inline_bytes})
          : ExchangeAlgorithm::direct;
  own->is_inline = moves_between_members ? algorithm == ExchangeAlgorithm::carried
                                         : largest <= options_.inline_bytes;
  group_->set_next_input(call, !own->is_inline    ? nullptr
                               : group_->relays() ? exchange::input_for_all
                                                  : exchange::input_for);
  if (own->is_inline) return own;
  if (host_ && HostCall::handles(call)) {
    own->host = std::make_unique<HostCall>(*own, host_, algorithm_of_rails(call, largest));
  } else if (algorithm != ExchangeAlgorithm::direct) {
    own->reduction = make_exchange(algorithm, *own, whole_data_of(*own));
  } else {
    expect_data(*own);
  }
  return own;
}

// Before this rank enters the call: the others send as soon as they know that it has entered.
void NetworkDataPlane::expect_data(NetworkCall& call) {
  const auto& made = call.call;
  if (has_owners(made.kind)) return expect_by_owners(call);
  call.transfers = true;
  const auto owned = exchange::owned_by(made, rank(), size());
  if (reduces(made.kind)) {
    call.scratch = group_->borrow(owned.length * static_cast<std::size_t>(size()));
  }
  for (int from = 0; from < size(); ++from) {
    if (from == rank()) continue;
    const auto index = static_cast<std::size_t>(from);
    if (reduces(made.kind)) {
      group_->expect(from, {call.number, 0}, {call.scratch_of(from), owned.length},
                     call.arrived[index]);
    } else {
      const auto range = exchange::received_from(made, from, rank(), size());
      if (range.length == 0) continue;
      group_->expect(from, {call.number, 0}, made.output.subspan(range.begin, range.length),
                     call.arrived[index]);
    }
    if (!exchange::returns_results(made.kind) || !exchange::keeps_results(made, rank())) continue;
    // In place, the owner sends its result only after it has received this rank's input of the
    // same elements: what arrives overwrites nothing that is still to be sent.
    const auto range = exchange::owned_by(made, from, size());
    group_->expect(from, {call.number, 1}, made.output.subspan(range.begin, range.length),
                   call.results[index]);
  }
}

Recipe NetworkDataPlane::begin(CallOperation& operation, bool /*same_memory*/) {
  auto& call = static_cast<NetworkCall&>(operation);
  if (call.host) return call.host->move();
  if (call.reduction) return move_reduction(call);
  const bool by_owners = has_owners(call.call.kind);
  if (!call.is_inline) return by_owners ? move_by_owners(call) : move_data(call);
  (by_owners ? run_inline_by_owners : run_inline)(call);
  return {};
}

void NetworkDataPlane::retire(CallOperation& operation, bool /*is_last*/) noexcept {
  auto& call = static_cast<NetworkCall&>(operation);
  group_->give_back(std::exchange(call.scratch, {}));
  group_->give_back(std::exchange(call.reduction_scratch, {}));
  call.host.reset();
}

std::shared_ptr<MessageOperation> NetworkDataPlane::send(const Message& message,
                                                         std::span<const std::byte> bytes) {
  auto own = std::make_shared<NetworkMessageOperation>(group_);
  own->message = message;
  own->sends = true;
  const auto& sends = sends_[static_cast<std::size_t>(message.peer)];
  own->recipe = deliver(*own, bytes, sends->begun++, sends);
  return own;
}

std::shared_ptr<MessageOperation> NetworkDataPlane::receive(const Message& message,
                                                            std::span<std::byte> bytes) {
  auto& turns = turns_[{message.peer, message.tag}];
  if (!turns) turns = std::make_shared<Turns>();
  auto own = std::make_shared<NetworkMessageOperation>(group_);
  own->message = message;
  own->recipe = collect(*own, bytes, turns->begun++, turns);
  return own;
}

std::shared_ptr<RegisteredMemory> NetworkDataPlane::allocate(std::size_t bytes,
                                                             const Device& /*device*/,
                                                             Deadline deadline,
                                                             const Watch& watch) {
  if (host_) return host_->allocate(bytes, deadline, watch);
  return std::make_shared<NetworkMemory>(bytes);
}

Recipe NetworkDataPlane::deliver(NetworkMessageOperation& operation,
                                 std::span<const std::byte> bytes, std::uint64_t number,
                                 std::shared_ptr<Sends> sends) {
  auto& group = *operation.group;
  const auto message = operation.message;
  const int peer = message.peer;
  const auto awaits = [&](const Network::Word& word, std::uint64_t target) {
    return Awaited{.counters = &group.counters(), .word = &word, .target = target, .peer = peer};
  };
  // Answers may arrive between the recipes of two messages: the later one must not overtake.
  co_await awaits(sends->offered, number);
  if (number >= kMaxWaitingOffers) {
    co_await awaits(group.answered(peer), number - kMaxWaitingOffers + 1);
  }
  // A message to this rank itself needs no network.
  const bool is_inline = bytes.size() <= kMaxInlineMessageBytes || peer == group.rank();
  NetworkMessage offer{.kind = Kind::offer, .number = number, .message = message};
  offer.is_inline = is_inline;
  if (is_inline) offer.bytes = bytes;
  group.post(peer, offer);
  ++sends->offered;
  while (!is_inline) {
    const auto arrivals = group.arrivals(peer).load();
    if (group.is_claimed(peer, number)) break;
    co_await awaits(group.arrivals(peer), arrivals + 1);
  }
  std::optional<bool> accepted;
  if (!is_inline) {
    accepted = group.try_answer(peer, number);  // refused without a claim
    if (!accepted) {
      operation.transfer = number;
      group.send(peer, {number, kMessagePart}, 0, bytes, operation.moved);
      co_await awaits(operation.moved, bytes.size());
    }
  }
  while (!accepted) {
    const auto arrivals = group.arrivals(peer).load();
    accepted = group.try_answer(peer, number);
    if (!accepted) co_await awaits(group.arrivals(peer), arrivals + 1);
  }
  if (*accepted) co_return;
  throw PeerError(peer, "the receiver expects a different message than " + in_words(message));
}

Recipe NetworkDataPlane::collect(NetworkMessageOperation& operation, std::span<std::byte> bytes,
                                 std::uint64_t turn, std::shared_ptr<Turns> turns) {
  auto& group = *operation.group;
  const auto message = operation.message;
  const int peer = message.peer;
  const auto awaits = [&](const Network::Word& word, std::uint64_t target) {
    return Awaited{.counters = &group.counters(), .word = &word, .target = target, .peer = peer};
  };
  co_await awaits(turns->matched, turn);
  std::optional<NetworkGroup::Offer> offer;
  while (true) {
    const auto arrivals = group.arrivals(peer).load();
    offer = group.try_match(peer, message.tag);
    if (offer) break;
    co_await awaits(group.arrivals(peer), arrivals + 1);
  }
  const auto& sent = offer->message;
  const bool fits = sent.count == message.count && sent.dtype == message.dtype;
  NetworkMessage answer{.kind = Kind::answer, .number = offer->number};
  answer.accepted = fits;
  if (!fits) {
    group.post(peer, answer);
    throw PeerError(peer,
                    "it sent " + in_words(sent) + ", but this rank receives " + in_words(message));
  }
  ++turns->matched;
  if (offer->is_inline) {
    if (!bytes.empty()) std::memcpy(bytes.data(), offer->bytes.data(), bytes.size());
  } else {
    operation.transfer = offer->number;
    group.expect(peer, {offer->number, kMessagePart}, bytes, operation.moved);
    group.post(peer, {.kind = Kind::claim, .number = offer->number});
    co_await awaits(operation.moved, bytes.size());
  }
  group.post(peer, answer);
}

class NetworkPlanes::State {
 public:
  std::shared_ptr<NetworkGroup> group;
  std::string kind;
  NetworkPlaneOptions options;
};

NetworkPlanes::NetworkPlanes(std::shared_ptr<Network> network, std::string kind, int rank,
                             std::vector<int> global_ranks, const NetworkPlaneOptions& options)
    : state_(std::make_unique<State>()) {
  const bool is_large = static_cast<int>(global_ranks.size()) > options.most_direct;
  state_->group =
      std::make_shared<NetworkGroup>(std::move(network), rank, std::move(global_ranks),
                                     is_large ? ToAll::relayed : ToAll::direct, options.hosts);
  state_->kind = std::move(kind);
  state_->options = options;
}
NetworkPlanes::~NetworkPlanes() = default;

std::uint64_t NetworkPlanes::end() const noexcept { return state_->group->number(); }

std::size_t NetworkPlanes::header_bytes() const {
  if (!state_->group->combines_headers()) return 0;
  return HostHeaders::bytes_per_rank(
      std::min(state_->options.inline_bytes, kMaxInlineMessageBytes));
}

std::vector<int> NetworkPlanes::first_peers() const { return state_->group->first_peers(); }

void NetworkPlanes::set_ends(std::vector<std::uint64_t> ends) {
  state_->group->set_ends(std::move(ends));
}

Planes NetworkPlanes::finish(Facts facts) {
  if (facts.host && facts.host->headers) state_->group->share_headers(facts.host->headers);
  Planes planes;
  planes.control = std::make_unique<NetworkControlPlane>(state_->group, std::move(facts.describe),
                                                         facts.shares_cores);
  planes.data = std::make_unique<NetworkDataPlane>(state_->group, state_->kind, state_->options,
                                                   std::move(facts.host));
  return planes;
}

}  // namespace lockstep
