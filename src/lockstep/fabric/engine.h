// What moves and sums spans among the ranks of a group. Rooms above see this interface; how an
// engine does it (shared memory, later TCP, MPI, NCCL) is its own file.
//
// Words: the group's ranks are numbered from 0; a rank's number in the world is its global rank,
// and messages name ranks by it. An operation is a call, a send or a receive that has begun.
//
// Progress is made by the caller: start() does what can be done at once and returns, advance(),
// done() and wait() go on. No thread works behind the caller's back. Threads may share an engine;
// they take turns.
//
// Failure: once a rank is lost, late, or makes another call than the rest, the operation and every
// later verb throw PeerError with the first cause. The process goes on: library memory stays
// readable and writable, private from then on, and a new group can be made.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/call.h"

namespace lockstep {

/// An operation that has begun, as its engine knows it.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// What the ranks said along with the call, combined, once the operation is done; the default
  /// where the call had no flags.
  [[nodiscard]] virtual const GroupFlags& flags() const noexcept = 0;
};

/// One rank's part of an allocation: a span that collectives use without a copy.
class LibraryMemory {
 public:
  LibraryMemory() = default;
  LibraryMemory(const LibraryMemory&) = delete;
  LibraryMemory& operator=(const LibraryMemory&) = delete;
  virtual ~LibraryMemory() = default;

  [[nodiscard]] virtual std::span<std::byte> bytes() const noexcept = 0;
};

/// A span to send to, or to receive from, one other rank.
struct Message {
  int peer = 0;  // a rank of the group
  int tag = 0;
  DType dtype = DType::uint8;
  std::int64_t count = 0;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  [[nodiscard]] virtual int global_rank(int rank) const = 0;
  /// "shm", for tables and logs.
  [[nodiscard]] virtual std::string kind() const = 0;

  /// Begins `call`.
  /// Collective: every rank starts an equal call, in the same order. Returns without waiting for
  /// the others, unless kMaxCallsInFlight earlier ones are not done. The spans belong to the engine
  /// until the operation is done; `keep` lives that long too.
  /// Throws UsageError for a call that cannot be (call.h); PeerError.
  [[nodiscard]] virtual std::shared_ptr<Operation> start(const Call& call,
                                                         std::shared_ptr<const void> keep) = 0;

  /// Begins to send or receive. Messages from one rank to another with the same tag arrive in
  /// order; sixteen of other tags may wait for their receives meanwhile. A send is done when the
  /// receiver has the data. Throws UsageError for a rank that is none, or a span that is not
  /// `count` elements long; PeerError, also from the operation where the two sides differ.
  [[nodiscard]] virtual std::shared_ptr<Operation> send(const Message& message,
                                                        std::span<const std::byte> bytes,
                                                        std::shared_ptr<const void> keep) = 0;
  [[nodiscard]] virtual std::shared_ptr<Operation> receive(const Message& message,
                                                           std::span<std::byte> bytes,
                                                           std::shared_ptr<const void> keep) = 0;

  /// Does what can be done for all operations without waiting.
  virtual void advance() = 0;
  /// Advances; true when the operation is done.
  [[nodiscard]] virtual bool done(Operation& operation) = 0;
  /// Returns when the operation is done. Throws PeerError when it cannot be, or is not by the
  /// deadline; without one the engine's own timeout counts from now.
  virtual void wait(Operation& operation, std::optional<Deadline> deadline = {}) = 0;

  /// New memory, zeroed, `bytes` for each rank. Collective; returns when every rank has it.
  [[nodiscard]] virtual std::shared_ptr<LibraryMemory> allocate(std::size_t bytes) = 0;

  /// The group of the ranks that give the same `color`, ordered by key, then by rank. Collective.
  [[nodiscard]] virtual std::shared_ptr<Engine> split(int color, int key) = 0;
};

}  // namespace lockstep
