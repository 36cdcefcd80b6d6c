// Atomic replacement of a file.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Creates `path` with `text`, or replaces its content: a reader finds the complete old content or
/// the complete new one. Not safe against a loss of power; checkpoint/commit.h is.
/// Throws SystemError.
void write_whole(const std::string& path, std::string_view text);

}  // namespace lockstep
