// How messages to all ranks of a large group travel: each rank relays them to its partners
// (relay.h).
//
// What a rank publishes about its calls follows a tree, from this rank to each other one along one
// path, so that it arrives in order.
// Its departure, its failure and its loss are flooded: they arrive although ranks are missing. On
// each connection they keep their order too, so that a rank that leaves and then ends has left
// before it is lost; ranks with which it exchanged data, and which therefore see the end of its
// connection, are told directly. A rank that has left relays nothing. It is not needed if it
// has completed the last call: then it has relayed everything about that call.
#include <algorithm>
#include <utility>

#include "lockstep/fabric/network_group_internal.h"
#include "lockstep/fabric/relay.h"

namespace lockstep {
namespace {

using Kind = NetworkMessage::Kind;

// Other ranks ask for it after half a second (Group::wait_a_little).
constexpr std::chrono::milliseconds kLongWait{100};

bool is_flooded(Kind kind) noexcept {
  return kind == Kind::standing || kind == Kind::failed || kind == Kind::lost;
}

bool goes_to_all(Kind kind) noexcept {
  return is_flooded(kind) || kind == Kind::entered || kind == Kind::completed ||
         kind == Kind::waits;
}

}  // namespace

void NetworkGroup::set_ends(std::vector<std::uint64_t> ends) {
  ends_ = std::move(ends);
  while (true) {
    std::vector<Waiting> waiting;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        has_ends_ = true;
        return;
      }
      waiting.swap(waiting_);
    }
    // Without the lock: the network calls this object with its own lock held.
    for (const auto& [ranks, message] : waiting) {
      for (const int to : ranks) network_->post(global_rank(to), ends_[index_of(to)], message);
    }
  }
}

void NetworkGroup::post_relayed(int origin, const NetworkMessage& message,
                                const PostMessage& post) {
  const auto inner = encode(message);
  NetworkMessage envelope{.kind = Kind::relayed, .origin = origin};
  envelope.bytes = inner;
  auto to = is_flooded(message.kind) ? partners_ : next_relays(rank_, rank_, size());
  for (int rank = 0; rank < size() && is_flooded(message.kind); ++rank) {
    const bool is_partner = std::binary_search(partners_.begin(), partners_.end(), rank);
    if (peer(rank).is_met && !is_partner) to.push_back(rank);
  }
  relay_to(to, encode(envelope), post);
}

void NetworkGroup::relay_to(std::span<const int> ranks, std::span<const std::byte> message,
                            const PostMessage& post) {
  if (!has_ends_) {
    const std::lock_guard lock(mutex_);
    if (!has_ends_) {
      waiting_.push_back({{ranks.begin(), ranks.end()}, {message.begin(), message.end()}});
      return;
    }
  }
  for (const int to : ranks) post(global_rank(to), ends_[index_of(to)], message);
}

// Of what is flooded, all but the first copy is ignored.
bool NetworkGroup::is_news(int origin, const NetworkMessage& message) const noexcept {
  const auto& about = peer(origin);
  const auto standing = about.standing.load();
  if (origin == rank_ || standing == Standing::left || standing == Standing::failed) return false;
  if (message.kind == Kind::lost) return !about.is_lost;
  return message.kind == Kind::failed || message.standing != standing;
}

bool NetworkGroup::handle_relayed(int sender, const NetworkMessage& envelope,
                                  std::span<const std::byte> message, const PostMessage& post) {
  const int origin = envelope.origin;
  const auto inner = try_decode(envelope.bytes);
  if (!relays() || origin < 0 || origin >= size() || !inner || !goes_to_all(inner->kind)) {
    return false;
  }
  if (!is_flooded(inner->kind)) {
    if (origin == rank_) return false;
    handle(origin, *inner);
    relay_to(next_relays(origin, rank_, size()), message, post);
    return true;
  }
  if (!is_news(origin, *inner)) return true;
  handle(origin, *inner);
  auto others = partners_;
  std::erase_if(others, [&](int rank) { return rank == sender || rank == origin; });
  relay_to(others, message, post);
  return true;
}

void NetworkGroup::lose(int peer, const std::string& why, const PostMessage& post) {
  const int rank = rank_of(peer);
  const NetworkMessage lost{.kind = Kind::lost, .cause = {rank, why}};
  if (!relays() || rank < 0 || !is_news(rank, lost)) return;
  handle(rank, lost);
  post_relayed(rank, lost, post);
}

// A message to all ranks per wait would be most of the messages of a group.
void NetworkGroup::publish_long_wait(const PostMessage& post) {
  const auto number = peer(rank_).waits_in.load();
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(long_wait_.number, number) != number) long_wait_.since = now;
  if (number == long_wait_.published || now - long_wait_.since < kLongWait) return;
  long_wait_.published = number;
  post_to_all({.kind = Kind::waits, .number = number}, post);
}

}  // namespace lockstep
