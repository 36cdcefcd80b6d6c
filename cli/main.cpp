// The lockstep command. Each verb has a folder; verb.cpp has the table of verbs.
#include <iostream>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "lockstep/base/file_descriptor.h"

int main(int argc, char** argv) {
  lockstep::keep_standard_descriptors();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return lockstep::cli::dispatch(arguments, {.out = std::cout, .error = std::cerr});
}
