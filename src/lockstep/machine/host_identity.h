// What tells this host from others, for processes that compare.
#pragma once

#include <string>

namespace lockstep {

/// The boot id of the kernel and the network, IPC, mount and process namespaces of this process, as
/// text. The boot id alone is not enough: containers of one machine share it. Where /proc does not
/// say, a random text, so that the rank is a host of its own.
[[nodiscard]] std::string host_identity();

}  // namespace lockstep
