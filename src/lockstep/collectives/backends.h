// Creates groups with the backend that fits the hosts of their ranks, for CPU memory. backends.cpp
// is the only file that includes a transport; a ProcessGroup has the transports of GPU memory from
// there too.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/trace/link_speed.h"

namespace lockstep {

struct BackendOptions;  // fabric/backend_choice.h
class Group;            // fabric/group.h
struct GroupOptions;
class World;

/// Creates the group of all ranks of `world`.
/// Collective: every rank calls this, in the same order as for its other groups. Returns when every
/// rank is present.
/// Throws UsageError if no backend connects the ranks (choose_backend), PeerError when a rank has
/// ended or is late.
[[nodiscard]] std::shared_ptr<Group> make_group(const World& world);
[[nodiscard]] std::shared_ptr<Group> make_group(const World& world, const GroupOptions& options,
                                                const BackendOptions& backend);

/// How fast this rank has sent to ranks on other hosts so far, as its kernel counts it
/// (trace/link_speed.h). Empty without backend tcp or hierarchical. Not collective.
[[nodiscard]] std::vector<LinkCount> link_counts(const World& world);
/// The processor time of the threads that move bytes between hosts, in seconds. 0 without any: in a
/// world without connections by TCP, and with an MPI that provides less than
/// MPI_THREAD_SERIALIZED. Not collective.
[[nodiscard]] double network_thread_seconds(const World& world);

}  // namespace lockstep
