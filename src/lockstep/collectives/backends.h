// Groups with the backend that suits where their ranks run. backends.cpp is the only file that
// includes a transport.
#pragma once

#include <memory>

namespace lockstep {

struct BackendOptions;  // fabric/backend_choice.h
class Group;            // fabric/group.h
struct GroupOptions;
class World;

/// The group of all ranks of `world`. Collective: every rank calls this, in the same order as its
/// other groups. Returns when all have come.
/// Throws UsageError when no backend connects the ranks (choose_backend); PeerError when a rank is
/// lost or late.
[[nodiscard]] std::shared_ptr<Group> make_group(const World& world);
[[nodiscard]] std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                                const BackendOptions& backend);

}  // namespace lockstep
