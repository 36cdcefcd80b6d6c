#include "lockstep/collectives/call_size.h"

#include "lockstep/rendezvous/call_size.h"

namespace lockstep {

std::optional<std::size_t> best_call_bytes(const ProcessGroup& group, std::size_t total) {
  const auto link = group.link();
  if (!link) return std::nullopt;
  return best_call_bytes(total, *link);
}

}  // namespace lockstep
