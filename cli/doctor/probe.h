// The probes of `lockstep doctor` on this node: they read facts and judge nothing. Each ends by its
// deadline.
#pragma once

#include <string>

#include "cli/doctor/facts.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"

namespace lockstep::cli {

/// Everything that the system tells without a measurement. `ranks` 0: one per GPU, or per core.
[[nodiscard]] DoctorFacts probe_system(const Environment& environment, int ranks);

/// Why two sockets of 127.0.0.1 do not reach each other by the deadline; empty: they do. Measures
/// the rate of the bytes between them for about 0.2 s.
[[nodiscard]] std::string probe_loopback(Deadline deadline, double& bytes_per_second);

/// Bytes per second that one core copies between buffers larger than its caches.
[[nodiscard]] double measure_memory(Deadline deadline);

/// The value of "name : value" in a file such as /proc/cpuinfo; empty without one.
[[nodiscard]] std::string value_in(const std::string& text, const std::string& name);

}  // namespace lockstep::cli
