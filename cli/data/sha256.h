// SHA-256, to hold what was fetched against what was pinned.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::cli {

/// 64 hex digits, as sha256sum prints them.
[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);

}  // namespace lockstep::cli
