// A virtual machine may hide the SVE instructions of a processor that has them (Neoverse V1, N2,
// V2). The BLAS in LibTorch's wheel selects its code by the processor's part number and crashes
// there with SIGILL or SIGSEGV, in Python too, unless an environment variable selects code without
// SVE.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

class Environment;

/// Whether `cpuinfo`, the text of /proc/cpuinfo, describes such a machine. Pure.
[[nodiscard]] bool hides_sve(std::string_view cpuinfo);
/// Whether this machine hides SVE.
[[nodiscard]] bool hides_sve();

/// The environment variable, and its value, that makes the BLAS select code without SVE.
[[nodiscard]] std::pair<std::string, std::string> plain_processor_variable();

/// For a program that gets `environment`: sets the variable if this machine hides SVE and the
/// variable is not set.
void set_plain_processor(Environment& environment);

}  // namespace lockstep
