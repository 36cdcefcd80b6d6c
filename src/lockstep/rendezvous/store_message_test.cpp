#include "lockstep/rendezvous/store_message.h"

#include <gtest/gtest.h>

#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

StoreValue value(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<StoreRequest> every_request() {
  return {request::Hello{{MemberKind::node, 7}},
          request::Set{"key", value("value")},
          request::Get{"key", Member{MemberKind::rank, 3}, 250ms},
          request::Get{"key", {}, kLongestWait},
          request::TryGet{std::string("\0\xff", 2)},
          request::Add{"count", -5},
          request::CompareExchange{"key", value("old"), value("new")},
          request::CompareExchange{"key", {}, {}},
          request::Remove{"key"},
          request::Wait{{"a", "b"}, {}, 1ms},
          request::Barrier{"b", {{MemberKind::rank, 0}, {MemberKind::node, 0}}, 10ms},
          request::ListMembers{},
          request::Goodbye{}};
}

std::vector<StoreReply> every_reply() {
  return {reply::Done{},
          reply::Value{value("value")},
          reply::Value{},
          reply::Number{INT64_MIN},
          reply::Exchanged{1, value("old")},
          reply::Members{{{{MemberKind::rank, 1}, MemberState::lost}}},
          reply::Refused{"no"},
          reply::PeerFailed{{MemberKind::rank, 3}, "rank 3 is lost"},
          reply::TimedOut{"late"},
          reply::MembersChanged{}};
}

TEST(StoreMessage, EveryMessageDecodesToItself) {
  for (const auto& request : every_request()) {
    const StoreRequestMessage message{0x0123456789abcdefu, request};
    EXPECT_EQ(decode_request(encode(message)), message) << request.index();
  }
  for (const auto& reply : every_reply()) {
    const StoreReplyMessage message{1, reply};
    EXPECT_EQ(decode_reply(encode(message)), message) << reply.index();
  }
}

TEST(StoreMessage, TheBytesAreThoseOfTheDescription) {
  const auto bytes = encode(StoreRequestMessage{0x0102, request::Set{"ab", value("xyz")}});
  const auto expected =
      value(std::string_view("\x02\x01\0\0\0\0\0\0"
                             "\x01"
                             "\x02\0\0\0"
                             "ab"
                             "\x03\0\0\0"
                             "xyz",
                             22));
  EXPECT_EQ(bytes, expected);
}

TEST(StoreMessage, AnIncompleteMessageOrOneWithExtraBytesIsRefused) {
  for (const auto& request : every_request()) {
    auto bytes = encode(StoreRequestMessage{9, request});
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW((void)decode_request(std::span(bytes).first(size)), UsageError);
    }
    bytes.push_back(std::byte{0});
    EXPECT_THROW((void)decode_request(bytes), UsageError);
  }
}

TEST(StoreMessage, LimitsHoldInBothDirections) {
  const auto encoded = [](StoreRequest request) {
    return encode(StoreRequestMessage{1, std::move(request)});
  };
  EXPECT_THROW((void)encoded(request::TryGet{""}), UsageError);
  EXPECT_THROW((void)encoded(request::TryGet{std::string(kMaxKeyBytes + 1, 'k')}), UsageError);
  EXPECT_NO_THROW((void)decode_request(encoded(request::TryGet{std::string(kMaxKeyBytes, 'k')})));
  EXPECT_THROW((void)encoded(request::Set{"k", StoreValue(kMaxValueBytes + 1)}), UsageError);
  EXPECT_NO_THROW((void)decode_request(encoded(request::Set{"k", StoreValue(kMaxValueBytes)})));
  EXPECT_THROW((void)encoded(request::CompareExchange{"k", StoreValue(kMaxValueBytes), value("x")}),
               UsageError);
  EXPECT_THROW((void)encoded(request::Get{"k", {}, -1ms}), UsageError);
  EXPECT_THROW((void)encoded(request::Wait{{}, {}, 1ms}), UsageError);
  EXPECT_THROW((void)encoded(request::Hello{{MemberKind::rank, kMaxMembers}}), UsageError);
  EXPECT_THROW((void)encoded(request::Hello{{MemberKind::rank, -1}}), UsageError);
}

TEST(StoreMessage, TheMembersOfABarrierAreInOrderWithoutDuplicates) {
  const Member rank0{MemberKind::rank, 0};
  const Member rank1{MemberKind::rank, 1};
  EXPECT_THROW((void)encode(StoreRequestMessage{1, request::Barrier{"b", {rank1, rank0}, 1ms}}),
               UsageError);
  EXPECT_THROW((void)encode(StoreRequestMessage{1, request::Barrier{"b", {rank0, rank0}, 1ms}}),
               UsageError);
  EXPECT_THROW((void)encode(StoreRequestMessage{1, request::Barrier{"b", {}, 1ms}}), UsageError);
}

TEST(StoreMessage, TheMembersOfABarrierTravelAsRanges) {
  auto members = all_ranks(1000);
  const auto size_of = [](const std::vector<Member>& list) {
    return encode(StoreRequestMessage{1, request::Barrier{"b", list, 1ms}}).size();
  };
  EXPECT_EQ(size_of(members), size_of({{MemberKind::rank, 5}}));
  members.erase(members.begin() + 500);
  members.push_back({MemberKind::node, 0});
  const StoreRequestMessage message{1, request::Barrier{"b", members, 1ms}};
  EXPECT_EQ(decode_request(encode(message)), message);

  // Two ranges, as bytes: kind, first and last.
  const auto barrier = [](std::string_view ranges) {
    return value(std::string(8, '\0') + "\x08" + std::string("\x01\0\0\0b", 5) +
                 std::string("\x02\0\0\0", 4) + std::string(ranges) + std::string(8, '\0'));
  };
  using std::literals::operator""sv;
  EXPECT_NO_THROW((void)decode_request(barrier("\0\0\0\0\0\x01\0\0\0\0\x03\0\0\0\x03\0\0\0"sv)));
  for (const auto ranges : {"\0\0\0\0\0\x01\0\0\0\0\x02\0\0\0\x03\0\0\0"sv,       // one range
                            "\0\0\0\0\0\x01\0\0\0\0\x01\0\0\0\x03\0\0\0"sv,       // overlap
                            "\x01\0\0\0\0\x01\0\0\0\0\x05\0\0\0\x05\0\0\0"sv,     // kinds
                            "\0\x02\0\0\0\x01\0\0\0\0\x05\0\0\0\x05\0\0\0"sv}) {  // reverse
    EXPECT_THROW((void)decode_request(barrier(ranges)), UsageError);
  }
}

TEST(StoreMessage, ClaimedGigabytesAreRefusedWithoutAllocation) {
  for (const std::string_view claim : {std::string_view("\xff\xff\xff\xff", 4),
                                       std::string_view("\0\0\x80\0", 4)}) {  // 4 GiB - 1, 8 MiB
    for (const char kind : {'\x01', '\x03', '\x07'}) {
      const auto text = std::string(8, '\0') + kind + std::string(claim);
      EXPECT_THROW((void)decode_request(value(text)), UsageError);
    }
  }
}

}  // namespace
}  // namespace lockstep
