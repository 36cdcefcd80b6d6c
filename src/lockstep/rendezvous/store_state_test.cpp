// The rules of the store, without a network and without a clock.
#include <gtest/gtest.h>

#include "lockstep/rendezvous/store_state_internal.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

Member rank(int number) { return {MemberKind::rank, number}; }

StoreValue value(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class Room {
 public:
  explicit Room(int size, std::size_t max_stored_bytes = 1u << 20) : state(max_stored_bytes) {
    for (int i = 0; i < size; ++i) {
      say(i, request::Hello{rank(i)});
      EXPECT_EQ(answer_to(i), StoreReply(reply::Done{}));
    }
  }

  // The connection of rank i has the number i; a request's id is its position in the test.
  void say(int from, StoreRequest request) {
    state.handle(static_cast<std::uint64_t>(from), {++last_id, std::move(request)}, now);
    collect();
  }
  void lose(int who) {
    state.disconnected(static_cast<std::uint64_t>(who));
    collect();
  }
  void pass(std::chrono::milliseconds span) {
    now += span;
    state.expire(now);
    collect();
  }
  // The only answer for a connection; nullopt when there is none.
  std::optional<StoreReply> answer_to(int who) {
    auto& waiting = answers[who];
    if (waiting.empty()) return std::nullopt;
    EXPECT_EQ(waiting.size(), 1u);
    return std::exchange(waiting, {}).front().message.reply;
  }

  StoreState state;
  StoreState::Time now{};
  std::uint64_t last_id = 0;
  std::map<int, std::vector<StoreState::Answer>> answers;

 private:
  void collect() {
    for (auto& answer : state.release_answers()) {
      answers[static_cast<int>(answer.to)].push_back(std::move(answer));
    }
  }
};

TEST(StoreState, ASecondMemberOfTheSameNameIsRefusedAndTheFirstStays) {
  Room room(4);
  room.say(9, request::Hello{rank(3)});
  EXPECT_TRUE(room.answers[9].at(0).then_close);
  EXPECT_EQ(room.answer_to(9),
            StoreReply(reply::Refused{"rank 3 is already connected: two processes have the same "
                                      "rank or node number"}));
  room.lose(9);
  room.say(3, request::TryGet{"k"});
  EXPECT_EQ(room.answer_to(3), StoreReply(reply::Value{}));
}

TEST(StoreState, AConnectionWithoutHelloGetsNoData) {
  Room room(1);
  room.say(0, request::Set{"k", value("v")});
  (void)room.answer_to(0);
  room.say(5, request::TryGet{"k"});
  EXPECT_TRUE(room.answers[5].at(0).then_close);
  EXPECT_TRUE(std::holds_alternative<reply::Refused>(*room.answer_to(5)));
}

TEST(StoreState, AGetWaitsUntilTheKeyExistsOrItsLimitPasses) {
  Room room(2);
  room.say(0, request::Get{"k", {}, 100ms});
  room.pass(99ms);
  EXPECT_FALSE(room.answer_to(0));
  room.say(1, request::Set{"k", value("v")});
  EXPECT_EQ(room.answer_to(0), StoreReply(reply::Value{value("v")}));
  EXPECT_EQ(room.answer_to(1), StoreReply(reply::Done{}));
  room.say(0, request::Get{"other", {}, 100ms});
  room.pass(100ms);
  EXPECT_EQ(room.answer_to(0),
            StoreReply(reply::TimedOut{"no member set \"other\" in the store within 100 ms"}));
  EXPECT_FALSE(room.state.next_expiry());
}

TEST(StoreState, AWaitForSeveralKeysEndsWithTheLastOfThem) {
  Room room(2);
  room.say(0, request::Wait{{"a", "b", "c"}, {}, 100ms});
  for (const char* key : {"c", "a", "b"}) {
    EXPECT_FALSE(room.answer_to(0));
    room.say(1, request::Set{key, {}});
    (void)room.answer_to(1);
  }
  EXPECT_EQ(room.answer_to(0), StoreReply(reply::Done{}));
}

TEST(StoreState, AWaitForALostMemberEndsAtOnceUnlessTheKeyExists) {
  Room room(3);
  room.say(0, request::Get{"k", rank(2), 100ms});
  room.lose(2);
  EXPECT_EQ(room.answer_to(0),
            StoreReply(reply::PeerFailed{rank(2),
                                         "rank 2 is lost (its connection ended), so it will not "
                                         "set \"k\""}));
  room.say(0, request::Get{"k", rank(2), 100ms});
  EXPECT_TRUE(std::holds_alternative<reply::PeerFailed>(*room.answer_to(0)));
  room.say(1, request::Set{"k", value("v")});
  room.say(0, request::Get{"k", rank(2), 100ms});
  EXPECT_EQ(room.answer_to(0), StoreReply(reply::Value{value("v")}));
}

TEST(StoreState, ABarrierOpensForAllWithTheLast) {
  Room room(3);
  for (int again = 0; again < 3; ++again) {
    for (const int who : {2, 0, 1}) {
      for (int other = 0; other < 3; ++other) EXPECT_FALSE(room.answer_to(other));
      room.say(who, request::Barrier{"b", all_ranks(3), 100ms});
    }
    for (int who = 0; who < 3; ++who) EXPECT_EQ(room.answer_to(who), StoreReply(reply::Done{}));
  }
}

TEST(StoreState, ABarrierThatNeedsALostMemberEndsAtOnceForAll) {
  Room room(4);
  room.say(0, request::Barrier{"b", all_ranks(4), 100ms});
  room.say(1, request::Barrier{"b", all_ranks(4), 100ms});
  room.say(2, request::Barrier{"not 3's", all_ranks(3), 100ms});
  room.lose(3);
  for (const int who : {0, 1}) {
    const auto answer = room.answer_to(who);
    ASSERT_TRUE(answer && std::holds_alternative<reply::PeerFailed>(*answer));
    EXPECT_EQ(std::get<reply::PeerFailed>(*answer).member, rank(3));
  }
  EXPECT_FALSE(room.answer_to(2));
  room.say(0, request::Barrier{"b", all_ranks(4), 100ms});
  EXPECT_TRUE(std::holds_alternative<reply::PeerFailed>(*room.answer_to(0)));
  room.say(3, request::Hello{rank(3)});  // a new process in its place
  (void)room.answer_to(3);
  room.say(0, request::Barrier{"b", all_ranks(4), 100ms});
  EXPECT_FALSE(room.answer_to(0));
}

TEST(StoreState, AWaitForAMemberThatLeftEndsTooAndTheLostAreNamed) {
  Room room(3);
  room.say(0, request::Barrier{"b", all_ranks(2), 100ms});
  room.lose(2);
  room.say(1, request::Goodbye{});
  EXPECT_EQ(room.answer_to(0),
            StoreReply(reply::PeerFailed{rank(1),
                                         "rank 1 has left, so it will not reach barrier \"b\"; "
                                         "lost before: rank 2"}));
}

TEST(StoreState, ALateBarrierListsTheMembersThatReachedItAndThoseThatDidNot) {
  Room room(4);
  room.say(0, request::Barrier{"b", all_ranks(6), 100ms});
  room.say(2, request::Barrier{"b", all_ranks(6), 100ms});
  room.pass(100ms);
  EXPECT_EQ(room.answer_to(0),
            StoreReply(reply::PeerFailed{
                rank(4),
                "2 of 6 members reached barrier \"b\" within 100 ms. Reached it: ranks 0 and 2. "
                "Never connected: ranks 4-5. Connected, but not at the barrier: ranks 1 and 3."}));
  EXPECT_EQ(room.answer_to(2),
            StoreReply(reply::PeerFailed{
                rank(4),
                "2 of 6 members reached barrier \"b\" within 100 ms. Reached it: ranks 0 and 2. "
                "Never connected: ranks 4-5. Connected, but not at the barrier: ranks 1 and 3. No "
                "longer waiting: rank 0."}));
}

TEST(StoreState, DifferentMemberListsOfABarrierAreRefused) {
  Room room(3);
  room.say(0, request::Barrier{"b", all_ranks(2), 100ms});
  room.say(1, request::Barrier{"b", all_ranks(3), 100ms});
  EXPECT_EQ(room.answer_to(1), StoreReply(reply::Refused{
                                   "rank 1 called barrier \"b\" with ranks 0-2, but rank 0 called "
                                   "it with ranks 0-1: all members must pass the same list"}));
  room.say(2, request::Barrier{"b", all_ranks(2), 100ms});
  EXPECT_TRUE(std::holds_alternative<reply::Refused>(*room.answer_to(2)));
}

TEST(StoreState, ANewRequestCancelsAnOlderWait) {
  Room room(2);
  room.say(0, request::Get{"k", {}, 100ms});
  room.say(0, request::TryGet{"k"});
  EXPECT_EQ(room.answer_to(0), StoreReply(reply::Value{}));
  room.say(1, request::Set{"k", {}});
  room.pass(200ms);
  EXPECT_FALSE(room.answer_to(0));
}

TEST(StoreState, AddCountsAndRefusesAValueThatIsNoInteger) {
  Room room(1);
  const auto add = [&](std::int64_t amount) {
    room.say(0, request::Add{"n", amount});
    return *room.answer_to(0);
  };
  EXPECT_EQ(add(5), StoreReply(reply::Number{5}));
  EXPECT_EQ(add(-7), StoreReply(reply::Number{-2}));
  EXPECT_TRUE(std::holds_alternative<reply::Refused>(add(INT64_MIN)));
  room.say(0, request::Set{"n", value("two")});
  (void)room.answer_to(0);
  EXPECT_EQ(add(1), StoreReply(reply::Refused{"cannot add to \"n\": its value of 3 bytes is not an "
                                              "integer"}));
}

TEST(StoreState, CompareExchangeDistinguishesAbsentFromEmpty) {
  Room room(1);
  const auto exchange = [&](std::optional<StoreValue> expected, StoreValue desired) {
    room.say(0, request::CompareExchange{"k", std::move(expected), std::move(desired)});
    return *room.answer_to(0);
  };
  EXPECT_EQ(exchange(StoreValue{}, value("a")), StoreReply(reply::Exchanged{0, {}}));
  EXPECT_EQ(exchange({}, {}), StoreReply(reply::Exchanged{1, {}}));
  EXPECT_EQ(exchange({}, value("a")), StoreReply(reply::Exchanged{0, StoreValue{}}));
  EXPECT_EQ(exchange(StoreValue{}, value("a")), StoreReply(reply::Exchanged{1, StoreValue{}}));
}

TEST(StoreState, AFullStoreRefusesAndRemoveMakesRoom) {
  Room room(1, 100);
  const auto set = [&](const std::string& key, std::size_t size) {
    room.say(0, request::Set{key, StoreValue(size)});
    return std::holds_alternative<reply::Done>(*room.answer_to(0));
  };
  EXPECT_TRUE(set("a", 99));
  EXPECT_TRUE(set("a", 99));  // replaced, not added
  EXPECT_FALSE(set("b", 0));
  room.say(0, request::Remove{"a"});
  EXPECT_EQ(room.answer_to(0), StoreReply(reply::Number{1}));
  EXPECT_TRUE(set("b", 99));
  EXPECT_FALSE(set("b", 100));
}

TEST(StoreState, MembersAreListedWithTheirStates) {
  Room room(3);
  room.lose(1);
  room.say(2, request::Goodbye{});
  room.say(0, request::ListMembers{});
  EXPECT_EQ(room.answer_to(0), StoreReply(reply::Members{{{rank(0), MemberState::connected},
                                                          {rank(1), MemberState::lost},
                                                          {rank(2), MemberState::left}}}));
}

TEST(StoreState, AChangeOfTheMembersIsAnnouncedOnceToThoseThatHaveTheList) {
  const StoreReply changed = reply::MembersChanged{};
  Room room(5);
  for (const int who : {0, 1}) {
    room.say(who, request::ListMembers{});
    (void)room.answer_to(who);
  }
  room.lose(3);
  EXPECT_EQ(room.answers[0].at(0).message.id, 0U);
  EXPECT_EQ(room.answer_to(0), changed);
  EXPECT_EQ(room.answer_to(1), changed);
  EXPECT_EQ(room.answer_to(2), std::nullopt);
  room.lose(4);  // no connection has the list now
  EXPECT_EQ(room.answer_to(0), std::nullopt);

  room.say(0, request::ListMembers{});
  (void)room.answer_to(0);
  room.say(1, request::Goodbye{});
  EXPECT_EQ(room.answer_to(0), changed);
  room.say(0, request::ListMembers{});
  (void)room.answer_to(0);
  room.say(5, request::Hello{rank(3)});  // joins again
  EXPECT_EQ(room.answer_to(0), changed);
  room.say(0, request::Barrier{"b", {rank(0), rank(3)}, 100ms});
  EXPECT_EQ(room.answer_to(0), std::nullopt);  // it waits: rank 3 is no longer lost
}

}  // namespace
}  // namespace lockstep
