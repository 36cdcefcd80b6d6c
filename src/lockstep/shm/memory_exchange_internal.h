// How the members of a group come to have the same memory mapped.
//
// Words: members are numbered from 0 as the group numbers its ranks; member 0 leads: it makes the
// memory, the others are given it.
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

  /// New memory that all members have mapped, zero until one of them writes.
  /// Collective: every member calls this, in the same order, with the same size. May return before
  /// others have it. Throws SystemError when the leader or a member is gone, when there is no
  /// memory, or at the deadline; what `watch` throws. The members that are there have their memory
  /// then, or hear that there is none.
  [[nodiscard]] virtual std::shared_ptr<SharedMemory> make(std::size_t bytes, Deadline deadline,
                                                           const Watch& watch) = 0;
  /// True when each member has its own mapping: one of them can then change what it sees alone.
  [[nodiscard]] virtual bool mapped_apart() const noexcept { return true; }
  /// The process of each member.
  [[nodiscard]] virtual std::span<const ProcessIdentity> processes() const noexcept = 0;
};

/// By descriptors over Unix sockets on which both sides have proven to know the job's secret.
class SocketExchange final : public MemoryExchange {
 public:
  /// Where the members come to: a socket of a random name.
  struct Door {
    std::string name;
    Listener listener;
  };
  [[nodiscard]] static Door open();

  /// The leader's side: waits for members 1 to size - 1. Strangers are turned away.
  /// Throws SystemError with ETIMEDOUT, naming who has not come.
  [[nodiscard]] static std::unique_ptr<SocketExchange> lead(Door door, const Secret& secret,
                                                            int size, Deadline deadline,
                                                            const Watch& watch = {});
  /// The side of member `member`, 1 or more; `where` is the leader's door's name.
  /// Throws UsageError when somebody else listens there, SystemError when nobody does.
  [[nodiscard]] static std::unique_ptr<SocketExchange> follow(const std::string& where,
                                                              const Secret& secret, int member,
                                                              Deadline deadline,
                                                              const Watch& watch = {});
  /// Of one member: needs nobody.
  [[nodiscard]] static std::unique_ptr<SocketExchange> alone();

  [[nodiscard]] std::shared_ptr<SharedMemory> make(std::size_t bytes, Deadline deadline,
                                                   const Watch& watch) override;
  [[nodiscard]] std::span<const ProcessIdentity> processes() const noexcept override {
    return processes_;
  }

 private:
  enum class Role { leader, follower };
  SocketExchange(Role role, std::vector<Channel> channels, std::vector<ProcessIdentity> processes);

  Role role_;
  std::vector<Channel> channels_;  // of the leader to each member, or the member's one to it
  std::vector<ProcessIdentity> processes_;
};

}  // namespace lockstep
