#include "lockstep/machine/host_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <random>
#include <string_view>

namespace lockstep {
namespace {

// "net:4026531840", the number of a namespace of this process; nullopt if /proc does not provide
// it.
std::optional<std::string> try_namespace(std::string_view kind) {
  struct stat facts {};
  if (::stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &facts) != 0) return std::nullopt;
  return fmt::format("{}:{}", kind, facts.st_ino);
}

std::string unique_identity() {
  std::random_device random;
  return fmt::format("unknown {:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

std::string host_identity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  for (const auto* kind : {"net", "ipc", "mnt", "pid"}) {
    const auto number = try_namespace(kind);
    if (!number || identity.empty()) return unique_identity();
    identity += ' ' + *number;
  }
  return identity;
}

}  // namespace lockstep
