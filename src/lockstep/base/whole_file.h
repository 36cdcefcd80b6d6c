// Files that appear whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Makes or replaces `path` with `text`: a reader finds what was there before or all of the new.
/// Not proof against a loss of power; checkpoints are (checkpoint/commit.h). Throws SystemError.
void write_whole(const std::string& path, std::string_view text);

}  // namespace lockstep
