// The verbs of the program lockstep-ckpt. Each returns an exit code and throws UsageError and
// SystemError.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

int run_inspect(const std::vector<std::string>& arguments);
/// Returns 1 when a checkpoint is invalid.
int run_verify(const std::vector<std::string>& arguments);
/// Returns 1 when they differ.
int run_diff(const std::vector<std::string>& arguments);
int run_export(const std::vector<std::string>& arguments);
int run_import(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
