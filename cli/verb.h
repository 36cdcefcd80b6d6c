// A verb of the lockstep command: `lockstep <name> arguments…`. Each but help, which is one file,
// has a folder with its name; the table is in verb.cpp.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.h"

namespace lockstep::cli {

/// Where a verb writes, so that tests can read it.
struct Streams {
  std::ostream& out;
  std::ostream& error;
};

struct Verb {
  std::string_view name;
  std::string_view summary;
  int (*run)(const std::vector<std::string>& arguments, Streams streams);
};

/// All verbs, in the order help shows them.
[[nodiscard]] std::span<const Verb> verbs();

/// Runs the command line after the program's name and returns its exit code.
[[nodiscard]] int dispatch(const std::vector<std::string>& arguments, Streams streams);

// The verbs.
int run_bench(const std::vector<std::string>& arguments, Streams streams);
int run_ckpt(const std::vector<std::string>& arguments, Streams streams);
int run_data(const std::vector<std::string>& arguments, Streams streams);
int run_generate(const std::vector<std::string>& arguments, Streams streams);
int run_help(const std::vector<std::string>& arguments, Streams streams);
int run_train(const std::vector<std::string>& arguments, Streams streams);
int run_run(const std::vector<std::string>& arguments, Streams streams);
int run_version(const std::vector<std::string>& arguments, Streams streams);

/// Answers a word that is no verb: names it, the nearest verb if there is one, and where the list
/// is.
int unknown_verb(std::string_view word, Streams streams);

}  // namespace lockstep::cli
