#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "lockstep/rendezvous/store_state_internal.h"

namespace lockstep {
namespace {

// A key in a message: cut if it is long, with control characters escaped.
std::string shown(std::string_view key) {
  constexpr std::size_t most = 80;
  std::string text = "\"";
  for (const char letter : key.substr(0, most)) {
    const bool plain = letter >= 0x20 && letter < 0x7f && letter != '"' && letter != '\\';
    text += plain ? std::string(1, letter)
                  : fmt::format("\\x{:02x}", static_cast<unsigned char>(letter));
  }
  return text + (key.size() > most ? "...\"" : "\"");
}

std::string in_words(std::chrono::milliseconds span) {
  if (span.count() < 10'000) return fmt::format("{} ms", span.count());
  return fmt::format("{} s", span.count() / 1000);
}

std::optional<std::int64_t> try_number(const StoreValue& value) {
  const auto* begin = reinterpret_cast<const char*>(value.data());
  const auto* end = begin + value.size();
  std::int64_t number = 0;
  const auto [stopped, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

StoreValue text_value(std::int64_t number) {
  const auto text = fmt::format("{}", number);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void StoreState::handle(Connection from, StoreRequestMessage message, Time now) {
  if (!sessions_.contains(from)) {
    if (const auto* hello = std::get_if<request::Hello>(&message.request)) {
      return welcome(from, message.id, *hello);
    }
    return answer(from, message.id, reply::Refused{"the first request must be Hello"}, true);
  }
  end_wait(from);
  std::visit([&](auto& each) { on(from, message.id, each, now); }, message.request);
}

void StoreState::disconnected(Connection connection) {
  const auto session = sessions_.find(connection);
  if (session == sessions_.end()) return;
  const auto member = session->second.member;
  end_wait(connection);
  sessions_.erase(connection);
  members_[member] = {MemberState::lost, 0};
  gone_.insert(member);
  informed_.erase(connection);
  announce_change();
  fail_waits_for(member);
}

void StoreState::expire(Time now) {
  while (!expiries_.empty() && expiries_.begin()->first <= now) {
    const auto connection = expiries_.begin()->second;
    finish(connection, late(*sessions_.at(connection).wait));
  }
}

std::optional<StoreState::Time> StoreState::next_expiry() const {
  if (expiries_.empty()) return std::nullopt;
  return expiries_.begin()->first;
}

void StoreState::welcome(Connection from, std::uint64_t id, const request::Hello& hello) {
  const auto known = members_.find(hello.member);
  if (known != members_.end() && known->second.state == MemberState::connected) {
    return answer(from, id,
                  reply::Refused{fmt::format("{} is already connected: two processes have the "
                                             "same rank or node number",
                                             to_string(hello.member))},
                  true);
  }
  members_[hello.member] = {MemberState::connected, from};
  gone_.erase(hello.member);
  announce_change();
  sessions_[from] = {hello.member, {}};
  answer(from, id, reply::Done{});
}

void StoreState::on(Connection from, std::uint64_t id, request::Hello& again, Time /*now*/) {
  answer(from, id,
         reply::Refused{fmt::format("{} has already said hello, as {}", to_string(again.member),
                                    to_string(sessions_.at(from).member))});
}

void StoreState::on(Connection from, std::uint64_t id, request::Set& set, Time /*now*/) {
  if (!put(from, id, set.key, std::move(set.value))) return;
  answer(from, id, reply::Done{});
  wake(set.key);
}

void StoreState::on(Connection from, std::uint64_t id, request::Get& get, Time now) {
  begin_wait(from,
             {id, now + get.limit, get.limit, KeyWait{{std::move(get.key)}, 0, get.from, true}});
}

void StoreState::on(Connection from, std::uint64_t id, request::TryGet& get, Time /*now*/) {
  const auto found = values_.find(get.key);
  answer(from, id,
         found == values_.end() ? reply::Value{} : reply::Value{std::optional(found->second)});
}

void StoreState::on(Connection from, std::uint64_t id, request::Add& add, Time /*now*/) {
  const auto found = values_.find(add.key);
  const auto before =
      found == values_.end() ? std::optional<std::int64_t>(0) : try_number(found->second);
  if (!before) {
    return answer(from, id,
                  reply::Refused{fmt::format("cannot add to {}: its value of {} bytes is not an "
                                             "integer",
                                             shown(add.key), found->second.size())});
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(*before, add.amount, &sum)) {
    return answer(
        from, id,
        reply::Refused{fmt::format("cannot add {} to {}: its value {} would overflow 64 bits",
                                   add.amount, shown(add.key), *before)});
  }
  if (!put(from, id, add.key, text_value(sum))) return;
  answer(from, id, reply::Number{sum});
  wake(add.key);
}

void StoreState::on(Connection from, std::uint64_t id, request::CompareExchange& exchange,
                    Time /*now*/) {
  const auto found = values_.find(exchange.key);
  auto before = found == values_.end() ? std::nullopt : std::optional(found->second);
  if (before != exchange.expected) {
    return answer(from, id, reply::Exchanged{0, std::move(before)});
  }
  if (!put(from, id, exchange.key, std::move(exchange.desired))) return;
  answer(from, id, reply::Exchanged{1, std::move(before)});
  wake(exchange.key);
}

void StoreState::on(Connection from, std::uint64_t id, request::Remove& remove, Time /*now*/) {
  const auto found = values_.find(remove.key);
  if (found == values_.end()) return answer(from, id, reply::Number{0});
  stored_bytes_ -= found->first.size() + found->second.size();
  values_.erase(found);
  answer(from, id, reply::Number{1});
}

void StoreState::on(Connection from, std::uint64_t id, request::Wait& wait, Time now) {
  begin_wait(
      from, {id, now + wait.limit, wait.limit, KeyWait{std::move(wait.keys), 0, wait.from, false}});
}

void StoreState::on(Connection from, std::uint64_t id, request::Barrier& barrier, Time now) {
  const auto& self = sessions_.at(from).member;
  if (!std::binary_search(barrier.members.begin(), barrier.members.end(), self)) {
    return answer(
        from, id,
        reply::Refused{fmt::format("{} is not among the members of barrier {}: {}", to_string(self),
                                   shown(barrier.name), to_string(barrier.members))});
  }
  const auto awaited = fmt::format("reach barrier {}", shown(barrier.name));
  for (const auto& member : gone_) {  // seldom any, so that a barrier of many costs little
    if (!std::binary_search(barrier.members.begin(), barrier.members.end(), member)) continue;
    if (auto reason = why_not_coming(member, awaited)) return answer(from, id, *reason);
  }
  auto& open = barriers_[barrier.name];
  if (open.came.empty()) open.members = barrier.members;
  if (open.members != barrier.members) {
    return answer(from, id,
                  reply::Refused{fmt::format(
                      "{} called barrier {} with {}, but {} called it with {}: all members must "
                      "pass the same list",
                      to_string(self), shown(barrier.name), to_string(barrier.members),
                      to_string(open.came.begin()->first), to_string(open.members))});
  }
  open.came[self] = from;
  open.gave_up.erase(self);
  if (open.came.size() < open.members.size()) {
    return begin_wait(
        from, {id, now + barrier.limit, barrier.limit, BarrierWait{std::move(barrier.name)}});
  }
  const auto came = std::exchange(open.came, {});
  barriers_.erase(barrier.name);
  answer(from, id, reply::Done{});
  for (const auto& [member, connection] : came) {
    if (connection != from) finish(connection, reply::Done{});
  }
}

void StoreState::on(Connection from, std::uint64_t id, request::ListMembers& /*list*/,
                    Time /*now*/) {
  reply::Members list;
  for (const auto& [member, presence] : members_) list.members.push_back({member, presence.state});
  answer(from, id, std::move(list));
  informed_.insert(from);
}

void StoreState::on(Connection from, std::uint64_t /*id*/, request::Goodbye& /*goodbye*/,
                    Time /*now*/) {
  const auto member = sessions_.at(from).member;
  sessions_.erase(from);
  members_[member] = {MemberState::left, 0};
  gone_.insert(member);
  informed_.erase(from);
  announce_change();
  fail_waits_for(member);
}

// Once per list: when all members of a large job leave, each of the others hears of the first.
void StoreState::announce_change() {
  for (const auto connection : std::exchange(informed_, {})) {
    answer(connection, 0, reply::MembersChanged{});
  }
}

void StoreState::answer(Connection to, std::uint64_t id, StoreReply reply, bool then_close) {
  answers_.push_back({to, {id, std::move(reply)}, then_close});
}

bool StoreState::put(Connection from, std::uint64_t id, const std::string& key, StoreValue value) {
  const auto found = values_.find(key);
  const auto freed = found == values_.end() ? 0 : key.size() + found->second.size();
  const auto after = stored_bytes_ - freed + key.size() + value.size();
  if (after > max_stored_bytes_) {
    answer(from, id,
           reply::Refused{fmt::format(
               "the store is full: {} bytes for {} would make it {} of {}; remove keys that are no "
               "longer needed",
               value.size(), shown(key), after, max_stored_bytes_)});
    return false;
  }
  stored_bytes_ = after;
  values_.insert_or_assign(key, std::move(value));
  return true;
}

void StoreState::begin_wait(Connection from, PendingWait wait) {
  expiries_.emplace(wait.until, from);
  sessions_.at(from).wait = std::move(wait);
  advance(from);
}

void StoreState::end_wait(Connection connection) {
  auto& session = sessions_.at(connection);
  if (!session.wait) return;
  const auto wait = *std::exchange(session.wait, std::nullopt);
  expiries_.erase({wait.until, connection});
  if (const auto* keys = std::get_if<KeyWait>(&wait.what)) {
    if (keys->next == keys->keys.size()) return;
    const auto waiters = key_waiters_.find(keys->keys[keys->next]);
    if (waiters == key_waiters_.end()) return;
    waiters->second.erase(connection);
    if (waiters->second.empty()) key_waiters_.erase(waiters);
    return;
  }
  const auto barrier = barriers_.find(std::get<BarrierWait>(wait.what).name);
  if (barrier == barriers_.end()) return;
  barrier->second.came.erase(session.member);
  barrier->second.gave_up.insert(session.member);
  if (barrier->second.came.empty()) barriers_.erase(barrier);
}

void StoreState::finish(Connection connection, StoreReply reply) {
  const auto id = sessions_.at(connection).wait->request;
  end_wait(connection);
  answer(connection, id, std::move(reply));
}

void StoreState::advance(Connection connection) {
  auto& wait = *sessions_.at(connection).wait;
  auto* keys = std::get_if<KeyWait>(&wait.what);
  if (keys == nullptr) return;
  auto found = values_.end();
  for (; keys->next < keys->keys.size(); ++keys->next) {
    found = values_.find(keys->keys[keys->next]);
    if (found == values_.end()) break;
  }
  if (keys->next == keys->keys.size()) {
    if (!keys->wants_value) return finish(connection, reply::Done{});
    return finish(connection, reply::Value{found->second});
  }
  key_waiters_[keys->keys[keys->next]].insert(connection);
  if (!keys->from) return;
  const auto awaited = fmt::format("set {}", shown(keys->keys[keys->next]));
  if (auto reason = why_not_coming(*keys->from, awaited)) finish(connection, *reason);
}

void StoreState::wake(const std::string& key) {
  const auto found = key_waiters_.find(key);
  if (found == key_waiters_.end()) return;
  const auto waiters = std::move(found->second);
  key_waiters_.erase(found);
  for (const auto connection : waiters) advance(connection);
}

void StoreState::fail_waits_for(const Member& member) {
  std::vector<std::pair<Connection, StoreReply>> failed;
  for (const auto& [connection, session] : sessions_) {
    if (!session.wait) continue;
    if (const auto* keys = std::get_if<KeyWait>(&session.wait->what)) {
      if (keys->from != member) continue;
      const auto awaited = fmt::format("set {}", shown(keys->keys[keys->next]));
      failed.emplace_back(connection, *why_not_coming(member, awaited));
      continue;
    }
    const auto& name = std::get<BarrierWait>(session.wait->what).name;
    const auto& members = barriers_.at(name).members;
    if (!std::binary_search(members.begin(), members.end(), member)) continue;
    failed.emplace_back(connection,
                        *why_not_coming(member, fmt::format("reach barrier {}", shown(name))));
  }
  for (auto& [connection, reply] : failed) finish(connection, std::move(reply));
}

std::optional<StoreReply> StoreState::why_not_coming(const Member& member,
                                                     const std::string& awaited) const {
  const auto known = members_.find(member);
  if (known == members_.end() || known->second.state == MemberState::connected) return std::nullopt;
  if (known->second.state == MemberState::lost) {
    return reply::PeerFailed{member,
                             fmt::format("{} is lost (its connection ended), so it will not {}",
                                         to_string(member), awaited)};
  }
  // A member that leaves early often does so because another is lost.
  std::vector<Member> lost;
  for (const auto& [other, presence] : members_) {
    if (presence.state == MemberState::lost) lost.push_back(other);
  }
  return reply::PeerFailed{
      member, fmt::format("{} has left, so it will not {}{}", to_string(member), awaited,
                          lost.empty() ? "" : fmt::format("; lost before: {}", to_string(lost)))};
}

StoreReply StoreState::late(const PendingWait& wait) const {
  if (const auto* keys = std::get_if<KeyWait>(&wait.what)) {
    const auto& missing = keys->keys[keys->next];
    if (!keys->from) {
      return reply::TimedOut{fmt::format("no member set {} in the store within {}", shown(missing),
                                         in_words(wait.limit))};
    }
    const bool here = members_.contains(*keys->from);
    return reply::PeerFailed{
        *keys->from, fmt::format("{} did not set {} in the store within {}; it {}",
                                 to_string(*keys->from), shown(missing), in_words(wait.limit),
                                 here ? "is connected" : "has never connected")};
  }
  const auto& name = std::get<BarrierWait>(wait.what).name;
  const auto& barrier = barriers_.at(name);
  std::vector<Member> came;
  std::vector<Member> absent;
  std::vector<Member> elsewhere;
  for (const auto& member : barrier.members) {
    const bool was_here = barrier.came.contains(member) || barrier.gave_up.contains(member);
    auto& list = was_here ? came : members_.contains(member) ? elsewhere : absent;
    list.push_back(member);
  }
  const auto first = !absent.empty()      ? absent.front()
                     : !elsewhere.empty() ? elsewhere.front()
                                          : *barrier.gave_up.begin();  // all came, but not together
  auto text =
      fmt::format("{} of {} members reached barrier {} within {}. Reached it: {}.", came.size(),
                  barrier.members.size(), shown(name), in_words(wait.limit), to_string(came));
  if (!absent.empty()) text += fmt::format(" Never connected: {}.", to_string(absent));
  if (!elsewhere.empty()) {
    text += fmt::format(" Connected, but not at the barrier: {}.", to_string(elsewhere));
  }
  if (!barrier.gave_up.empty()) {
    text += fmt::format(" No longer waiting: {}.",
                        to_string(std::vector(barrier.gave_up.begin(), barrier.gave_up.end())));
  }
  return reply::PeerFailed{first, text};
}

}  // namespace lockstep
