// The interface of a transport: one function that connects the ranks of a group and returns the
// group's control plane and data plane.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/fabric/device_plane.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/group_registry.h"
#include "lockstep/trace/rank_page.h"

namespace lockstep {

struct Planes {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<DataPlane> data;
  std::unique_ptr<DevicePlane> device = {};  // for memory on GPUs; may be null
  std::string reason = {};                   // why this transport was chosen
};

/// The ranks of a group, and the objects that it shares with the other groups of its world.
struct Membership {
  int rank = 0;                        // in the group
  std::vector<int> global_ranks;       // by rank
  std::vector<int> hosts;              // by rank: the number of its host
  std::vector<std::string> addresses;  // by rank: the address of its host
  std::shared_ptr<GroupRegistry> registry;
  std::shared_ptr<const Secret> secret;  // of the job; null in a world of one rank
  std::optional<std::string> run_dir;    // the folder of flight recorder files
  RankPage page;                         // a copy of the world's: the same memory

  [[nodiscard]] int size() const noexcept { return static_cast<int>(global_ranks.size()); }
};

/// Exchanges the addresses at which the ranks of a new group can be reached.
class AddressExchange {
 public:
  AddressExchange() = default;
  AddressExchange(const AddressExchange&) = delete;
  AddressExchange& operator=(const AddressExchange&) = delete;
  virtual ~AddressExchange() = default;

  static constexpr std::size_t kMaxBytes = 191;
  /// Publishes this rank's address, which may be empty and has at most kMaxBytes.
  /// Collective: every rank calls this once. Returns when all ranks have called it.
  virtual void exchange(const std::string& own) = 0;
  /// The address of `rank` of the new group. Valid after exchange().
  [[nodiscard]] virtual std::string of(int rank) = 0;
};

/// Connects this rank to the others and returns its planes.
/// Collective over the members. Calls addresses.exchange() exactly once, also for a group of one.
/// Throws SystemError when a member has ended or does not connect by the deadline, UsageError, and
/// any exception of `watch`.
using Connect = std::function<Planes(const Membership& membership, AddressExchange& addresses,
                                     Deadline deadline, const Watch& watch)>;

}  // namespace lockstep
