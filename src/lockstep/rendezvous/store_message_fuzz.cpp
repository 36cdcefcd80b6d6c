// Fuzz target: arbitrary bytes as a message of the store. They are refused with a UsageError, or
// encode to the same bytes again; everything else, including another exception, is a crash. Valid
// requests are also handled, so that the server's rules see every possible request.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"
#include "lockstep/rendezvous/store_message.h"
#include "lockstep/rendezvous/store_state_internal.h"

namespace {

using lockstep::StoreState;

// Two members. Each piece of the input, a length byte and that many bytes, is a request of one.
void play(std::span<const std::byte> script) {
  StoreState state(1u << 16);
  StoreState::Time now{};
  for (StoreState::Connection connection = 0; connection < 2; ++connection) {
    const lockstep::Member member{lockstep::MemberKind::rank, static_cast<int>(connection)};
    state.handle(connection, {0, lockstep::request::Hello{member}}, now);
  }
  constexpr int most_pieces = 32;  // a longer script only costs time
  StoreState::Connection connection = 0;
  for (int i = 0; i < most_pieces && !script.empty(); ++i, connection ^= 1) {
    const auto size = std::min(std::to_integer<std::size_t>(script[0]), script.size() - 1);
    try {
      state.handle(connection, lockstep::decode_request(script.subspan(1, size)), now);
    } catch (const lockstep::UsageError&) {
      state.disconnected(connection);
    }
    now += std::chrono::milliseconds(1);
    state.expire(now);
    for (const auto& answer : state.release_answers()) (void)lockstep::encode(answer.message);
    script = script.subspan(1 + size);
  }
  state.expire(now + lockstep::kLongestWait);
  LOCKSTEP_ASSERT(!state.next_expiry(), "no wait lasts longer than its limit");
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const auto again = lockstep::encode(lockstep::decode_request(bytes));
    LOCKSTEP_ASSERT(std::ranges::equal(again, bytes), "a request has one encoding");
  } catch (const lockstep::UsageError&) {
  }
  try {
    const auto again = lockstep::encode(lockstep::decode_reply(bytes));
    LOCKSTEP_ASSERT(std::ranges::equal(again, bytes), "a reply has one encoding");
  } catch (const lockstep::UsageError&) {
  }
  play(bytes);
  return 0;
}
