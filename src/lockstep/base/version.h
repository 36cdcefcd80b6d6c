// lockstep's version; CMake reads it from here too.
#pragma once

namespace lockstep {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace lockstep
