#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/fabric/network_group_internal.h"
#include "lockstep/fabric/relay.h"

namespace lockstep {
namespace {

using Kind = NetworkMessage::Kind;

}  // namespace

NetworkGroup::NetworkGroup(std::shared_ptr<Network> network, int rank,
                           std::vector<int> global_ranks, ToAll to_all, std::vector<int> hosts)
    : rank_(rank),
      global_ranks_(std::move(global_ranks)),
      to_all_(to_all),
      partners_(relays() ? partners_of(rank, size()) : std::vector<int>()),
      hosts_(std::move(hosts)),
      network_(std::move(network)),
      post_([this](int peer, std::uint64_t end, std::span<const std::byte> message) {
        network_->post(peer, end, message);
      }),
      words_(3 * global_ranks_.size()),
      counters_(reinterpret_cast<const std::byte*>(words_.data()), 3 * sizeof(Word), sizeof(Word),
                static_cast<int>(global_ranks_.size())) {
  for (std::size_t i = 0; i < global_ranks_.size(); ++i) peers_.push_back(std::make_unique<Peer>());
  number_ = network_->open(*this);
}

NetworkGroup::~NetworkGroup() {
  network_->close(number_);
  {
    auto& turn = network_->turn();
    const std::lock_guard lock(turn.mutex);
    if (turn.last == this) turn.last = nullptr;
  }
  // A group that was never complete leaves too: the others wait for it.
  if (!is_over_ && has_ends_) set_standing(Standing::left);
}

int NetworkGroup::rank_of(int global_rank) const noexcept {
  const bool may_be_equal = global_rank >= 0 && global_rank < size();  // as in the group of all
  if (may_be_equal && global_ranks_[index_of(global_rank)] == global_rank) return global_rank;
  const auto found = std::find(global_ranks_.begin(), global_ranks_.end(), global_rank);
  return found == global_ranks_.end() ? -1 : static_cast<int>(found - global_ranks_.begin());
}

std::vector<int> NetworkGroup::first_peers() const {
  if (relays()) return partners_;
  std::vector<int> others(global_ranks_.size());
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + rank_);
  return others;
}

bool NetworkGroup::receive(int peer, std::span<const std::byte> message, const PostMessage& post) {
  const int sender = rank_of(peer);
  const auto decoded = try_decode(message);
  if (sender < 0 || !decoded || decoded->kind == Kind::lost) return false;
  if (decoded->kind == Kind::relayed) return handle_relayed(sender, *decoded, message, post);
  if (decoded->kind == Kind::host_entered) return handle_host_entered(sender, *decoded);
  if (decoded->kind == Kind::entered) return handle_entered(sender, *decoded);
  handle(sender, *decoded);
  return true;
}

void NetworkGroup::settle(const PostMessage& post) {
  if (!has_ends_) return;
  publish_long_wait(post);
  publish_late_headers(post);
  const auto completed = completed_.load();
  if (completed_published_.exchange(completed) == completed) return;
  post_to_all({.kind = Kind::completed, .number = completed}, post);
}

CallRecord& NetworkGroup::own_record(std::uint64_t number) noexcept {
  return peer(rank_).calls[number % kMaxCallsInFlight].record;
}

void NetworkGroup::set_next_input(const Call& call, InlineInput input_of) noexcept {
  next_call_ = call;
  next_input_ = input_of;
}

void NetworkGroup::enter(std::uint64_t number, std::uint64_t signature) {
  const bool keeps_turn = claim_turn();
  auto& own = peer(rank_).calls[number % kMaxCallsInFlight];
  own.signature = signature;
  NetworkMessage message{.kind = Kind::entered, .number = number, .signature = signature};
  message.record = own.record;
  message.completed = completed_.load();
  completed_published_.store(message.completed);
  const auto input_for = [&](int to) {
    return next_input_ == nullptr ? std::span<const std::byte>()
                                  : next_input_(next_call_, rank_, to);
  };
  if (relays()) {
    message.bytes = input_for(rank_);
    post_to_all(message);
  } else {
    const bool is_combined = headers_ && keeps_turn;
    if (headers_) enter_on_host(message, /*posts_own=*/!is_combined);
    for (int i = 1; i < size(); ++i) {
      const int to = (rank_ + i) % size();  // ranks begin with different ones
      if (is_combined && !is_on_own_host(to)) continue;
      message.bytes = input_for(to);
      post(to, message);
    }
  }
  raise(rank_, Condition::Of::entered, number);
}

// Published with the next call, before this rank sleeps, or when it is idle: a message of its own
// would double the cost of a small call.
void NetworkGroup::complete(std::uint64_t number) noexcept {
  constexpr std::uint64_t kMostUnpublished = kMaxCallsInFlight / 4;
  raise(rank_, Condition::Of::completed, number);
  completed_.store(number);
  if (number >= completed_published_.load() + kMostUnpublished) publish_completed();
}

void NetworkGroup::publish_completed() {
  const auto completed = completed_.load();
  if (completed_published_.exchange(completed) == completed) return;
  post_to_all({.kind = Kind::completed, .number = completed});
}

void NetworkGroup::set_standing(Standing standing) {
  peer(rank_).standing = standing;
  if (standing == Standing::left) is_over_ = true;
  if (standing != Standing::left && relays()) return;  // a rank that is present enters calls
  if (standing == Standing::left) publish_late_headers(post_, /*patience=*/{});
  // The others wait for data of completed calls that are on the way.
  const auto completed = completed_.load();
  completed_published_.store(completed);
  post_to_all({.kind = Kind::standing, .completed = completed, .standing = standing});
}

void NetworkGroup::fail(const Cause& cause) {
  is_over_ = true;
  {
    const std::lock_guard lock(mutex_);
    peer(rank_).cause = cause;
  }
  peer(rank_).standing = Standing::failed;
  publish_late_headers(post_, /*patience=*/{});
  post_to_all({.kind = Kind::failed, .completed = completed_.load(), .cause = cause});
}

void NetworkGroup::set_waits_in(std::uint64_t number) {
  const bool is_known = peer(rank_).waits_in.exchange(number) == number;
  if (is_known || network_->settles()) return;  // settle() publishes a long wait
  post_to_all({.kind = Kind::waits, .number = number});
}

void NetworkGroup::post(int to, const NetworkMessage& message) {
  if (to == rank_) return handle(rank_, message);
  meet(to);
  network_->post(global_rank(to), ends_[index_of(to)], encode(message));
}

void NetworkGroup::post_to_all(const NetworkMessage& message) { post_to_all(message, post_); }

void NetworkGroup::post_to_all(const NetworkMessage& message, const PostMessage& post) {
  if (relays()) return post_relayed(rank_, message, post);
  const auto bytes = encode(message);
  for (int to = 0; to < size(); ++to) {
    if (to != rank_) post(global_rank(to), ends_[index_of(to)], bytes);
  }
}

const CallRecord& NetworkGroup::record(int rank, std::uint64_t number) const noexcept {
  return peer(rank).calls[number % kMaxCallsInFlight].record;
}

std::uint64_t NetworkGroup::signature(int rank, std::uint64_t number) const noexcept {
  return peer(rank).calls[number % kMaxCallsInFlight].signature;
}

std::span<const std::byte> NetworkGroup::input(int rank, std::uint64_t number) const noexcept {
  return peer(rank).calls[number % kMaxCallsInFlight].input;
}

Standing NetworkGroup::standing(int rank) const noexcept { return peer(rank).standing; }

Cause NetworkGroup::cause(int rank) const {
  const std::lock_guard lock(mutex_);
  return peer(rank).cause;
}

bool NetworkGroup::is_lost(int rank) const {
  return peer(rank).is_lost || network_->is_lost(global_rank(rank));
}

std::string NetworkGroup::loss_of(int rank) const {
  if (network_->is_lost(global_rank(rank))) return network_->loss_of(global_rank(rank));
  const std::lock_guard lock(mutex_);
  return peer(rank).loss;
}

std::uint64_t NetworkGroup::waits_in(int rank) const noexcept { return peer(rank).waits_in; }

const NetworkGroup::Word& NetworkGroup::phases(int rank) const noexcept {
  return words_[3 * index_of(rank) + static_cast<std::size_t>(Condition::Of::phases)];
}

std::optional<NetworkGroup::Offer> NetworkGroup::try_match(int from, int tag) {
  const std::lock_guard lock(mutex_);
  auto& offers = peer(from).offers;
  const auto found = offers.find(tag);
  if (found == offers.end()) return std::nullopt;
  auto offer = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) offers.erase(found);
  return offer;
}

bool NetworkGroup::is_claimed(int by, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  return peer(by).claims.erase(number) > 0 || peer(by).answers.contains(number);
}

std::optional<bool> NetworkGroup::try_answer(int of, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = peer(of).answers.find(number);
  if (found == peer(of).answers.end()) return std::nullopt;
  const bool accepted = found->second;
  peer(of).answers.erase(found);
  return accepted;
}

void NetworkGroup::expect(int from, const TransferKey& key, std::span<std::byte> bytes,
                          Word& received) {
  if (bytes.empty()) return;
  meet(from);
  network_->expect(global_rank(from), number_, key, bytes, received);
}

void NetworkGroup::send(int to, const TransferKey& key, std::uint64_t offset,
                        std::span<const std::byte> bytes, Word& sent) {
  if (bytes.empty()) return;
  meet(to);
  network_->send(global_rank(to), ends_[index_of(to)], number_, key, offset, bytes, sent);
}

Bytes NetworkGroup::borrow(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto fits = std::find_if(spare_.begin(), spare_.end(),
                                 [&](const Bytes& each) { return each.size() >= bytes; });
  if (fits == spare_.end()) return Bytes(bytes);
  auto memory = std::move(*fits);
  spare_.erase(fits);
  return memory;
}

void NetworkGroup::give_back(Bytes memory) noexcept {
  constexpr std::size_t kMostSpare = 4;
  if (memory.empty()) return;
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(memory));
  if (spare_.size() <= kMostSpare) return;
  const auto by_size = [](const Bytes& a, const Bytes& b) { return a.size() < b.size(); };
  spare_.erase(std::min_element(spare_.begin(), spare_.end(), by_size));
}

// Never backwards: a message that states less is ignored.
void NetworkGroup::raise(int rank, Condition::Of of, std::uint64_t value) noexcept {
  auto& word = words_[3 * index_of(rank) + static_cast<std::size_t>(of)];
  if (word.load(std::memory_order_relaxed) < value) word.store(value, std::memory_order_seq_cst);
}

void NetworkGroup::handle(int rank, const NetworkMessage& message) {
  auto& from = peer(rank);
  switch (message.kind) {
    case Kind::entered:
      (void)handle_entered(rank, message);
      return;
    case Kind::completed:
      return raise(rank, Condition::Of::completed, message.number);
    case Kind::standing:
      raise(rank, Condition::Of::completed, message.completed);
      from.standing = message.standing;
      return;
    case Kind::relayed:
    case Kind::host_entered:
      return;
    case Kind::lost: {
      const std::lock_guard lock(mutex_);
      from.loss = message.cause.text;
      from.is_lost = true;
      return;
    }
    case Kind::failed: {
      raise(rank, Condition::Of::completed, message.completed);
      {
        const std::lock_guard lock(mutex_);
        from.cause = message.cause;
        from.cause.culprit = std::clamp(message.cause.culprit, 0, size() - 1);
      }
      from.standing = Standing::failed;
      ++failures_;
      return;
    }
    case Kind::waits:
      from.waits_in = message.number;
      return;
    case Kind::phases:
      return raise(rank, Condition::Of::phases, message.number);
    case Kind::offer: {
      const std::lock_guard lock(mutex_);
      from.offers[message.message.tag].push_back({message.number,
                                                  message.message,
                                                  message.is_inline,
                                                  {message.bytes.begin(), message.bytes.end()}});
      break;
    }
    case Kind::claim: {
      const std::lock_guard lock(mutex_);
      from.claims[message.number] = true;
      break;
    }
    case Kind::answer: {
      const std::lock_guard lock(mutex_);
      from.answers[message.number] = message.accepted;
      ++from.answered;
      break;
    }
  }
  ++from.arrivals;
}

// Headers of one rank may arrive through several others, in any order and twice. They are used in
// the order of the calls. Returns false for a call that no rank can have entered yet: the records
// and inputs of calls that this rank has not completed are in use.
bool NetworkGroup::handle_entered(int rank, const NetworkMessage& message) {
  auto& from = peer(rank);
  raise(rank, Condition::Of::completed, message.completed);
  const auto entered = counters_.value(rank, Condition::Of::entered);
  if (message.number <= entered) return true;
  if (message.number > completed_.load() + kMaxCallsInFlight) return false;
  auto& call = message.number == entered + 1 ? from.calls[message.number % kMaxCallsInFlight]
                                             : from.early[message.number];
  call.record = message.record;
  call.signature = message.signature;
  call.input.assign(message.bytes.begin(), message.bytes.end());
  if (message.number != entered + 1) return true;
  raise(rank, Condition::Of::entered, message.number);
  for (auto next = message.number + 1; from.early.contains(next); ++next) {
    from.calls[next % kMaxCallsInFlight] = std::move(from.early.extract(next).mapped());
    raise(rank, Condition::Of::entered, next);
  }
  return true;
}

}  // namespace lockstep
