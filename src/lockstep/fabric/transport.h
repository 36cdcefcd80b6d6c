// How a group comes by its planes: the one function that a transport offers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/fabric/control_plane.h"
#include "lockstep/fabric/data_plane.h"
#include "lockstep/net/secret.h"
#include "lockstep/rendezvous/group_registry.h"

namespace lockstep {

struct Planes {
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<DataPlane> data;
  std::string reason = {};  // why this transport was chosen
};

/// Which ranks make up a group, and what it shares with the other groups of its world.
struct Membership {
  int rank = 0;                        // in the group
  std::vector<int> global_ranks;       // by rank
  std::vector<int> hosts;              // by rank: the number of its host
  std::vector<std::string> addresses;  // by rank: of its host
  std::shared_ptr<GroupRegistry> registry;
  std::shared_ptr<const Secret> secret;  // of the job; none in a world of one
  std::optional<std::string> run_dir;    // where a flight recorder writes to

  [[nodiscard]] int size() const noexcept { return static_cast<int>(global_ranks.size()); }
};

/// How the ranks of a group that is being made tell each other where they can be reached.
class Introductions {
 public:
  Introductions() = default;
  Introductions(const Introductions&) = delete;
  Introductions& operator=(const Introductions&) = delete;
  virtual ~Introductions() = default;

  static constexpr std::size_t kMaxBytes = 95;
  /// Collective: every rank calls this once, with its own text or an empty one. Returns when all
  /// have.
  virtual void exchange(const std::string& own) = 0;
  /// What `rank` of the new group said, after exchange().
  [[nodiscard]] virtual std::string of(int rank) = 0;
};

/// Connects this rank to the others and returns its planes.
/// Collective over the members; calls introductions.exchange() exactly once, also for a group of
/// one. Throws SystemError when a member is gone or late, UsageError, what `watch` throws.
using Connect = std::function<Planes(const Membership& membership, Introductions& introductions,
                                     Deadline deadline, const Watch& watch)>;

}  // namespace lockstep
