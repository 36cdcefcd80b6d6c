// A client of the job's key-value store: keys and values that every member can read and write, and
// barriers. It is for set-up: ranks meet through it, then communicate directly. The server is in
// store_server.h.
//
// Keys are any 1 to 8192 bytes, values up to 8 MiB. Threads may share a Store; only one of them
// uses it at a time, so a long wait of one thread delays the others.
//
// Every function throws SystemError: at once when the connection to the server is lost ("the
// rendezvous server at ... is lost"), or with ETIMEDOUT when it does not answer; and UsageError for
// a key or value over a limit. A wait that times out reports what was missing, as the server knows
// it; for this answer a function may return up to kAnswerGrace after its deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/member.h"
#include "lockstep/rendezvous/store_message.h"

namespace lockstep {

constexpr std::chrono::milliseconds kAnswerGrace{500};

/// The result of compare_exchange.
struct ExchangeResult {
  bool exchanged = false;
  std::optional<StoreValue> before;  // nullopt when the key did not exist
};

class Store {
 public:
  /// Connects as `member`; retries until `deadline` while the server is not reachable.
  /// Throws UsageError when the other side does not know the secret or belongs to another job or
  /// round, and when the member is already connected; SystemError when the server is not reachable.
  [[nodiscard]] static Store connect(const Endpoint& server, const Secret& secret,
                                     const HandshakeContext& context, const Member& member,
                                     Deadline deadline);
  /// The same through the abstract Unix socket `name`.
  [[nodiscard]] static Store connect_unix(std::string_view name, const Secret& secret,
                                          const HandshakeContext& context, const Member& member,
                                          Deadline deadline);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  /// Leaves: tells the server that the member has left. A connection that ends without this makes
  /// the member lost.
  ~Store();

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline);
  void set(std::string_view key, std::string_view text, Deadline deadline);

  /// Waits until the key exists and returns its value.
  /// `from` is the member that sets it: if it is lost, has left, or the deadline passes, throws
  /// PeerError that names it. Without `from`, throws SystemError with ETIMEDOUT at the deadline.
  [[nodiscard]] StoreValue get(std::string_view key, Deadline deadline,
                               std::optional<Member> from = {});
  /// The same as text.
  [[nodiscard]] std::string get_text(std::string_view key, Deadline deadline,
                                     std::optional<Member> from = {});
  /// The value; nullopt when the key does not exist now.
  [[nodiscard]] std::optional<StoreValue> try_get(std::string_view key, Deadline deadline);

  /// Adds to a value that is a decimal integer; a key that does not exist counts as 0.
  /// Returns the sum. Throws UsageError when the value is not an integer or the sum overflows 64
  /// bits.
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline);

  /// Sets `desired` if the value equals `expected`; nullopt expects that the key does not exist.
  /// Both values together have at most 8 MiB.
  [[nodiscard]] ExchangeResult compare_exchange(std::string_view key,
                                                std::optional<std::span<const std::byte>> expected,
                                                std::span<const std::byte> desired,
                                                Deadline deadline);

  /// Removes the key. Returns true when it existed.
  bool remove(std::string_view key, Deadline deadline);

  /// Returns when each of `keys` has existed. Throws as get() does.
  void wait(std::span<const std::string> keys, Deadline deadline, std::optional<Member> from = {});

  /// Waits until all of `members` have called this. The list contains this member, and each once.
  /// Collective: every one of `members` calls this with the same list. A name can be used again
  /// afterwards.
  /// Throws PeerError as soon as one of them is lost or has left, and at the deadline, with the
  /// lists of members that reached the barrier and that did not; UsageError when the lists differ.
  void barrier(std::string_view name, std::span<const Member> members, Deadline deadline);

  /// All members that have ever connected, with their states. Asks the server only if it has
  /// announced a change since the last call, so this is cheap to call often.
  [[nodiscard]] std::vector<MemberStatus> members(Deadline deadline);

  [[nodiscard]] const Member& member() const noexcept;
  /// For messages: "127.0.0.1:29500", or "the Unix socket job-7".
  [[nodiscard]] const std::string& server() const noexcept;
  /// The address of this machine that reached the server; 127.0.0.1 through a Unix socket.
  [[nodiscard]] const std::string& local_address() const noexcept;
  /// The secret that authenticates the connection.
  [[nodiscard]] const Secret& secret() const noexcept;
  /// The descriptor, for poll(2) while no function of this Store runs: readable when the server is
  /// lost.
  [[nodiscard]] int number() const noexcept;

 private:
  struct Connection;

  explicit Store(std::unique_ptr<Connection> connection) noexcept;
  /// Sends the member's name and returns the Store once the server has accepted it.
  static Store introduce(std::unique_ptr<Connection> connection, Deadline deadline);
  /// Sends `request` and returns its answer, at most `grace` after the deadline. Throws for the
  /// three kinds of answers that are errors.
  StoreReply ask(StoreRequest request, Deadline deadline, std::chrono::milliseconds grace = {});
  /// The members as far as this process knows them; nullopt if it must ask.
  std::optional<std::vector<MemberStatus>> try_known_members(Deadline deadline);

  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep
