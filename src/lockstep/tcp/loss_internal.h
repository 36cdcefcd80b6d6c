// How the loss of a connection to another process is described. Pure functions.
//
// The kernel of the peer's machine acknowledges also what its process does not read. So a peer that
// is silent while everything sent to it is acknowledged has a machine that answers. An error of the
// kernel does not tell: it gives up a connection after the same time in both cases.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

/// Of a peer that has not answered. `acknowledges`: whether its machine had acknowledged everything
/// when that was last seen.
[[nodiscard]] std::string silence_in_words(bool acknowledges);
/// Of a connection that the kernel has given up with this error.
[[nodiscard]] std::string error_in_words(int error_number, bool acknowledges);

/// A process that ends closes all its connections at once.
constexpr std::chrono::milliseconds kEndingTime{250};
/// Of a peer of whose connections `num_ended` have been closed or reset. Some were seen open until
/// `open_for` after the first of them ended, and pinged after kEndingTime; `has_answered`: the
/// process of the peer has. A connection of a machine that has restarted since stays open until
/// something is sent through it. Empty: the process has ended. nullopt if that is not known yet.
[[nodiscard]] std::optional<std::string> ends_in_words(int num_ended, int num_connections,
                                                       std::chrono::nanoseconds open_for,
                                                       bool has_answered);

}  // namespace lockstep
