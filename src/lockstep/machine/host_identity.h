// A text that identifies this host. Processes compare it to find out whether they share a host.
#pragma once

#include <string>

namespace lockstep {

/// The boot id of the kernel and the network, IPC, mount and process namespaces of this process, as
/// text. The boot id alone is not enough: all containers of a machine have the same. If /proc does
/// not provide them, a random text: the rank then counts as a host of its own.
[[nodiscard]] std::string host_identity();

}  // namespace lockstep
