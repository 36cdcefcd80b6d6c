// The name of the processor, for people: in `lockstep doctor` and in the record of a run.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// The name in a text of /proc/cpuinfo. aarch64 kernels give only numbers: Arm's designs for
/// servers are named as lscpu names them ("Neoverse-V1"), another part is "part 0xd21". Empty if
/// the text does not tell.
[[nodiscard]] std::string processor_name_in(std::string_view cpuinfo);

/// That of this machine; empty if unknown.
[[nodiscard]] std::string processor_name();

}  // namespace lockstep
