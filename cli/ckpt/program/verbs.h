// What the program lockstep-ckpt does for the lockstep command. Each throws UsageError and
// SystemError, and returns an exit code.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

int run_inspect(const std::vector<std::string>& arguments);
/// 1 when a checkpoint is not whole.
int run_verify(const std::vector<std::string>& arguments);
/// 1 when they differ.
int run_diff(const std::vector<std::string>& arguments);
int run_export(const std::vector<std::string>& arguments);
int run_import(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
