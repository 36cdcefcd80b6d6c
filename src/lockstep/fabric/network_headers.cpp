// How the headers of a host's ranks reach the other hosts: the rank that enters a call last posts
// all of them, in one message per receiver. The ranks of a host tell each other directly, because
// they wait for each other.
//
// A header that waits for the other ranks of its host is posted by its own rank after
// kHeaderPatience: otherwise the other hosts would report this rank as late, not the one that has
// not entered.
//
// Order: what a rank enters earlier is seen earlier, in calls of several groups too. The headers of
// one group are used in the order of their numbers. When a rank turns to another group, it first
// posts its headers of the group before that others may not have yet, then, itself, that of the
// first call of the other group. Both take the same connection.
#include <algorithm>
#include <utility>

#include "lockstep/fabric/network_data_plane_internal.h"

namespace lockstep {
namespace {

using Kind = NetworkMessage::Kind;

// The header as `to` receives it: with the part of the input that it needs.
NetworkMessage header_for(const NetworkMessage& header, int to) {
  const auto& made = header.record.descriptor;
  auto cut = header;
  cut.bytes = exchange::input_for({.kind = made.kind,
                                   .dtype = made.dtype,
                                   .root = made.root,
                                   .count = made.count,
                                   .input = header.bytes},
                                  header.origin, to);
  return cut;
}

// As many messages as their limit requires.
std::vector<Bytes> encode_together(std::span<const NetworkMessage> headers) {
  std::vector<Bytes> messages;
  NetworkMessage next{.kind = Kind::host_entered};
  std::size_t bytes = 1;
  for (const auto& header : headers) {
    const auto more = kMaxEnteredBytes + header.bytes.size();
    if (bytes + more > kMaxMessageBytes) {
      messages.push_back(encode(next));
      next.headers.clear();
      bytes = 1;
    }
    next.headers.push_back(header);
    bytes += more;
  }
  messages.push_back(encode(next));
  return messages;
}

}  // namespace

bool NetworkGroup::combines_headers() const {
  if (relays() || hosts_.empty()) return false;
  const auto here = std::count(hosts_.begin(), hosts_.end(), hosts_[index_of(rank_)]);
  return here > 1 && here < size();
}

void NetworkGroup::share_headers(std::shared_ptr<RegisteredMemory> memory) {
  const auto own = hosts_.begin() + rank_;
  headers_ = std::make_unique<HostHeaders>(
      std::move(memory), static_cast<std::size_t>(std::count(hosts_.begin(), own, *own)),
      static_cast<std::size_t>(std::count(hosts_.begin(), hosts_.end(), *own)));
}

bool NetworkGroup::is_on_own_host(int rank) const {
  return hosts_[index_of(rank)] == hosts_[index_of(rank_)];
}

// Makes the turn that of this group. Returns false if this rank has entered a call of another group
// since its last one of this group.
bool NetworkGroup::claim_turn() {
  auto& turn = network_->turn();
  const std::lock_guard lock(turn.mutex);
  if (turn.last == this) return true;
  if (turn.last != nullptr) turn.last->pass_turn();
  turn.last = this;
  return false;
}

void NetworkGroup::pass_turn() {
  if (!headers_) return;
  post_own_headers(headers_->take_unposted(counters_.lowest(Condition::Of::completed)), post_);
}

void NetworkGroup::publish_late_headers(const PostMessage& post,
                                        std::chrono::milliseconds patience) {
  if (counters_.value(rank_, Condition::Of::entered) == 0 || !headers_) return;
  post_own_headers(headers_->take_late({.entered = counters_.lowest(Condition::Of::entered),
                                        .completed = counters_.lowest(Condition::Of::completed)},
                                       HostHeaders::Clock::now(), patience),
                   post);
}

void NetworkGroup::enter_on_host(NetworkMessage header, bool posts_own) {
  Bytes own;
  if (!posts_own) {
    if (next_input_ != nullptr) header.bytes = exchange::input_for_all(next_call_, rank_, rank_);
    own = encode(header);
  }
  if (!headers_->enter(header.number, own)) return;
  std::vector<NetworkMessage> headers;
  std::size_t index = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (!is_on_own_host(rank)) continue;
    auto found = try_decode(headers_->header_of(index++, header.number));
    if (!found || found->kind != Kind::entered || found->number != header.number) continue;
    found->origin = rank;
    headers.push_back(*std::move(found));
  }
  post_to_other_hosts(headers, post_);
  headers_->set_posted(header.number);
}

void NetworkGroup::post_own_headers(const std::vector<Bytes>& headers, const PostMessage& post) {
  std::vector<NetworkMessage> own;
  for (const auto& header : headers) {
    own.push_back(try_decode(header).value());
    own.back().origin = rank_;
  }
  post_to_other_hosts(own, post);
}

void NetworkGroup::post_to_other_hosts(std::span<const NetworkMessage> headers,
                                       const PostMessage& post) {
  if (headers.empty()) return;
  std::vector<NetworkMessage> wanted(headers.size());
  std::vector<Bytes> messages;
  for (int i = 1; i < size(); ++i) {
    const int to = (rank_ + i) % size();
    if (is_on_own_host(to)) continue;
    bool is_new = messages.empty();
    for (std::size_t j = 0; j < headers.size(); ++j) {
      auto header = header_for(headers[j], to);
      is_new = is_new || header.bytes.data() != wanted[j].bytes.data() ||
               header.bytes.size() != wanted[j].bytes.size();
      wanted[j] = std::move(header);
    }
    if (is_new) messages = encode_together(wanted);
    for (const auto& message : messages) post(global_rank(to), ends_[index_of(to)], message);
  }
}

bool NetworkGroup::handle_host_entered(int sender, const NetworkMessage& message) {
  if (hosts_.empty() || is_on_own_host(sender)) return false;
  return std::all_of(message.headers.begin(), message.headers.end(), [&](const auto& header) {
    return header.origin >= 0 && header.origin < size() &&
           hosts_[index_of(header.origin)] == hosts_[index_of(sender)] &&
           handle_entered(header.origin, header);
  });
}

}  // namespace lockstep
