// Virtual machines may hide SVE of a processor that has it (Neoverse V1, N2, V2). The BLAS in
// LibTorch's wheel goes by the processor's name and dies of SIGILL or SIGSEGV there, in Python too,
// unless it is told to take the processor for a plain one.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

/// Whether `cpuinfo`, the text of /proc/cpuinfo, is of such a machine. Pure.
[[nodiscard]] bool hides_sve(std::string_view cpuinfo);
/// Of this machine.
[[nodiscard]] bool hides_sve();

/// What tells the BLAS: a variable and its value.
[[nodiscard]] std::pair<std::string, std::string> plain_processor_variable();

}  // namespace lockstep
