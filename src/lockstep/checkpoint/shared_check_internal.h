// Verifies the bytes of a checkpoint that all ranks have opened. The ranks of a host divide the
// reading, because they have the same mounts (machine/host_identity.h) and the same page cache: on
// each host, each byte is read by one rank.
#pragma once

#include <string>

#include "lockstep/checkpoint/file_system.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {

/// Compares the digests of all files with the manifest, on each host. Returns what is wrong, equal
/// on all ranks; empty if `checkpoint` is valid on every host. `group` has all ranks of `world`.
/// Collective: every rank calls it with a checkpoint that has the same manifest.
/// Throws PeerError if a rank is lost or late.
[[nodiscard]] std::string shared_check(FileSystem& files, const ValidCheckpoint& checkpoint,
                                       const World& world, const ProcessGroup& group);

}  // namespace lockstep
