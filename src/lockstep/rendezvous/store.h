// A job's shared notebook: keys with values that any member can read and write, and barriers. Small
// and for set-up: ranks meet through it, then talk directly. store_server.h answers.
//
// Keys are any 1 to 8192 bytes, values up to 8 MiB. Threads may share a Store; they take turns, so
// a long wait of one holds up the others.
//
// Every verb throws SystemError when the server is gone ("the rendezvous server at ... is gone"),
// at once, or with ETIMEDOUT when it does not answer; UsageError for a key or value that breaks a
// limit. A wait that ends at its deadline has the server's word for what was missing; to hear it, a
// verb may return up to kAnswerGrace later.
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

/// Of compare_exchange.
struct ExchangeResult {
  bool exchanged = false;
  std::optional<StoreValue> before;  // nothing when the key was not there
};

class Store {
 public:
  /// Connects as `member`, trying again until `deadline` while nobody listens there yet.
  /// Throws UsageError when the other side does not know the secret or is of another job or round,
  /// and when the member is already connected; SystemError when the server cannot be reached.
  [[nodiscard]] static Store connect(const Endpoint& server, const Secret& secret,
                                     const HandshakeContext& context, const Member& member,
                                     Deadline deadline);
  /// The same through the abstract Unix socket `name`.
  [[nodiscard]] static Store connect_unix(std::string_view name, const Secret& secret,
                                          const HandshakeContext& context, const Member& member,
                                          Deadline deadline);
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  /// Says goodbye: the member has left. Without that it is lost.
  ~Store();

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline);
  void set(std::string_view key, std::string_view text, Deadline deadline);

  /// The value, once the key is there. `from` is who is to set it: if that member is gone, or late,
  /// throws PeerError that names it; without one throws SystemError with ETIMEDOUT.
  [[nodiscard]] StoreValue get(std::string_view key, Deadline deadline,
                               std::optional<Member> from = {});
  /// The same as text.
  [[nodiscard]] std::string get_text(std::string_view key, Deadline deadline,
                                     std::optional<Member> from = {});
  /// Nothing when the key is not there now.
  [[nodiscard]] std::optional<StoreValue> try_get(std::string_view key, Deadline deadline);

  /// Adds to a value that is a whole number in decimal digits; one that is not there counts as 0.
  /// Returns the sum. Throws UsageError when the value is something else or leaves 64 bits.
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline);

  /// Sets `desired` if the value is `expected`, or if there is none where nothing is expected. Both
  /// together are at most 8 MiB.
  [[nodiscard]] ExchangeResult compare_exchange(std::string_view key,
                                                std::optional<std::span<const std::byte>> expected,
                                                std::span<const std::byte> desired,
                                                Deadline deadline);

  /// True when the key was there.
  bool remove(std::string_view key, Deadline deadline);

  /// Returns when each of `keys` has been there. Throws as get does.
  void wait(std::span<const std::string> keys, Deadline deadline, std::optional<Member> from = {});

  /// Waits for all of `members`, this one among them, each at most once in the list.
  /// Collective among the members: all name the same ones; a name can be used again afterwards.
  /// Throws PeerError as soon as one of them is lost or has left, and at the deadline, listing who
  /// came and who did not; UsageError when members differ about who takes part.
  void barrier(std::string_view name, std::span<const Member> members, Deadline deadline);

  /// Everyone who ever connected.
  [[nodiscard]] std::vector<MemberStatus> members(Deadline deadline);

  [[nodiscard]] const Member& member() const noexcept;
  /// For messages: "127.0.0.1:29500", or "the Unix socket job-7".
  [[nodiscard]] const std::string& server() const noexcept;
  /// The address of this machine that reached the server; 127.0.0.1 through a Unix socket.
  [[nodiscard]] const std::string& local_address() const noexcept;
  /// What the connection was proven with.
  [[nodiscard]] const Secret& secret() const noexcept;
  /// For poll(2), while no verb runs: readable when the server is gone.
  [[nodiscard]] int number() const noexcept;

 private:
  struct Connection;

  explicit Store(std::unique_ptr<Connection> connection) noexcept;
  /// The Store of a connection that has said who it is, and was let in.
  static Store introduce(std::unique_ptr<Connection> connection, Deadline deadline);
  /// Sends `request` and returns its answer, `grace` past the deadline at most. Throws for the
  /// three answers that are errors.
  StoreReply ask(StoreRequest request, Deadline deadline, std::chrono::milliseconds grace = {});

  std::unique_ptr<Connection> connection_;
};

}  // namespace lockstep
