// A verb of the lockstep command: `lockstep <name> arguments…`. Each verb except help has a folder
// of its name; the table is in verb.cpp.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/error_report.h"

namespace lockstep::cli {

/// The output streams of a verb; tests use their own.
struct Streams {
  std::ostream& out;
  std::ostream& error;
};

struct Verb {
  std::string_view name;
  std::string_view summary;
  int (*run)(const std::vector<std::string>& arguments, Streams streams);
};

/// All verbs, in the order of the help.
[[nodiscard]] std::span<const Verb> verbs();

/// Runs the command line after the program's name and returns its exit code.
[[nodiscard]] int dispatch(const std::vector<std::string>& arguments, Streams streams);

// The verbs.
int run_bench(const std::vector<std::string>& arguments, Streams streams);
int run_ckpt(const std::vector<std::string>& arguments, Streams streams);
int run_data(const std::vector<std::string>& arguments, Streams streams);
int run_doctor(const std::vector<std::string>& arguments, Streams streams);
int run_generate(const std::vector<std::string>& arguments, Streams streams);
int run_help(const std::vector<std::string>& arguments, Streams streams);
int run_report(const std::vector<std::string>& arguments, Streams streams);
int run_top(const std::vector<std::string>& arguments, Streams streams);
int run_train(const std::vector<std::string>& arguments, Streams streams);
int run_run(const std::vector<std::string>& arguments, Streams streams);
int run_version(const std::vector<std::string>& arguments, Streams streams);

/// Prints that `word` is not a verb, with the nearest verb, if there is one. Returns kUsage.
int unknown_verb(std::string_view word, Streams streams);

}  // namespace lockstep::cli
