// The verbs of `lockstep data` that do not need LibTorch, one file per verb.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

int run_data_inspect(const std::vector<std::string>& arguments, Streams streams);
int run_data_tokenize(const std::vector<std::string>& arguments, Streams streams);
int run_data_fetch(const std::vector<std::string>& arguments, Streams streams);

}  // namespace lockstep::cli
