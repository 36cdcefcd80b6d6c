#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {

void refuse(const FileBytes& file, std::uint64_t offset, std::string_view reason) {
  throw UsageError(fmt::format("{}, byte {}: {}", file.name(), offset, reason));
}

void require_bytes(const FileBytes& file, std::uint64_t offset, std::uint64_t count,
                   std::string_view what) {
  if (offset <= file.size() && count <= file.size() - offset) return;
  refuse(file, offset,
         fmt::format("expected {} ({} bytes), found the end of the file at byte {}", what, count,
                     file.size()));
}

}  // namespace lockstep
