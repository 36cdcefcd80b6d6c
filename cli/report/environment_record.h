// environment.json: what a run ran on and with, written at each start. Versions, source revision,
// processor, memory, devices, limits, digests of the data, command. No secret: of the environment
// only the variables of a fixed list, and values of arguments that look like secrets are left out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/machine/machine.h"

namespace lockstep::cli {

struct EnvironmentFacts {
  std::vector<std::string> command = {};  // words, as they were typed
  std::vector<std::string> data = {};     // paths; missing files are left out
  int ranks = 0;                          // on this node
};

/// One JSON object; docs/report.md documents it. Reads files of the system; runs no program.
[[nodiscard]] std::string environment_json(const EnvironmentFacts& facts, const Machine& machine,
                                           const Environment& environment);

/// The words of a command as one line, where a value is replaced by "…" if its option is called
/// key, token, secret, password or credential: "--api-key=…".
[[nodiscard]] std::string command_without_secrets(std::span<const std::string> words);

/// The revision of the Git checkout that contains `folder`, read from its files: 40 hexadecimal
/// digits; empty if there is none.
[[nodiscard]] std::string git_revision(const std::string& folder);

}  // namespace lockstep::cli
