#include "lockstep/formats/npz_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/formats/name_list_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {

NpzFile::NpzFile(FileBytes file) : archive_(std::move(file)) {
  constexpr std::string_view ending = ".npy";
  std::set<std::string_view> seen;
  for (const auto& member : archive_.members()) {
    if (!member.name.ends_with(ending) || !seen.insert(member.name).second) {
      refuse(this->file(), member.header_offset,
             fmt::format("expected members NAME.npy with different names, found {}",
                         in_quotes(member.name)));
    }
    names_.push_back(member.name.substr(0, member.name.size() - ending.size()));
  }
}

NpyFile NpzFile::array(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end()) {
    throw UsageError(fmt::format("{} has no array {}; it has {}", file().name(), in_quotes(name),
                                 name_list(names_)));
  }
  const auto index = static_cast<std::size_t>(found - names_.begin());
  return NpyFile(archive_.contents(archive_.members()[index]));
}

}  // namespace lockstep
