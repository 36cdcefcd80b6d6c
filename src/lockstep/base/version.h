// The version of lockstep; CMake reads it from this file too.
#pragma once

namespace lockstep {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace lockstep
