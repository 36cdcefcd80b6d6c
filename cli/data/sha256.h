// SHA-256, to compare downloads with pinned values.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace lockstep::cli {

/// 64 hex digits, as sha256sum prints them.
[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);

}  // namespace lockstep::cli
