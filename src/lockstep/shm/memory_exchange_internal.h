// Gives all members of a group mappings of the same memory.
//
// Words: members are numbered from 0, as the ranks of the group. Member 0 is the root: it allocates
// the memory and sends its descriptor to the others.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/net/channel.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/shared_memory.h"
#include "lockstep/rendezvous/process_identity.h"

namespace lockstep {

class MemoryExchange {
 public:
  MemoryExchange() = default;
  MemoryExchange(const MemoryExchange&) = delete;
  MemoryExchange& operator=(const MemoryExchange&) = delete;
  virtual ~MemoryExchange() = default;

  /// Allocates zeroed memory that all members map.
  /// Collective: every member calls this, in the same order, with the same size. May return before
  /// other members have mapped it. Throws SystemError when the root or a member has ended, when the
  /// allocation fails, or at the deadline; and any exception of `watch`. Each remaining member then
  /// has its memory or throws too.
  [[nodiscard]] virtual std::shared_ptr<SharedMemory> make(std::size_t bytes, Deadline deadline,
                                                           const Watch& watch) = 0;
  /// Whether each member has its own mapping, which it can change without affecting the others.
  [[nodiscard]] virtual bool mapped_apart() const noexcept { return true; }
  /// The process of each member.
  [[nodiscard]] virtual std::span<const ProcessIdentity> processes() const noexcept = 0;
};

/// Sends descriptors over Unix sockets on which both sides have proven that they know the job's
/// secret.
class SocketExchange final : public MemoryExchange {
 public:
  /// The socket that the members connect to; its name is random.
  struct ListeningSocket {
    std::string name;
    Listener listener;
  };
  [[nodiscard]] static ListeningSocket listen();

  /// The root's side: accepts members 1 to size - 1; refuses connections without the secret.
  /// Returns when all have connected. Throws SystemError with ETIMEDOUT, naming the missing
  /// members.
  [[nodiscard]] static std::unique_ptr<SocketExchange> accept(ListeningSocket listening,
                                                              const Secret& secret, int size,
                                                              Deadline deadline,
                                                              const Watch& watch = {});
  /// The side of member `member`, at least 1; `where` is the name of the root's socket.
  /// Throws UsageError if the socket belongs to another user, SystemError if there is none.
  [[nodiscard]] static std::unique_ptr<SocketExchange> connect(const std::string& where,
                                                               const Secret& secret, int member,
                                                               Deadline deadline,
                                                               const Watch& watch = {});
  /// For a group of one member; connects to no one.
  [[nodiscard]] static std::unique_ptr<SocketExchange> alone();

  [[nodiscard]] std::shared_ptr<SharedMemory> make(std::size_t bytes, Deadline deadline,
                                                   const Watch& watch) override;
  [[nodiscard]] std::span<const ProcessIdentity> processes() const noexcept override {
    return processes_;
  }

 private:
  enum class Role { root, peer };
  SocketExchange(Role role, std::vector<Channel> channels, std::vector<ProcessIdentity> processes);

  Role role_;
  std::vector<Channel> channels_;  // root: to each member; member: to the root
  std::vector<ProcessIdentity> processes_;
};

}  // namespace lockstep
