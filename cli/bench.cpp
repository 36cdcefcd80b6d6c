// `lockstep bench <verb>`: measurements on this machine. One line a verb.
#include <array>

#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep bench: measure this machine\n"
    "\n"
    "  bench data FILE…    how fast batches come, where the time goes, which knob to turn\n"
    "\n"
    "Each explains itself: `lockstep bench data --help`.\n"
    "\n"
    "Examples:\n"
    "  lockstep bench data train.bin --batch 32 --window 256\n";

int run_bench_data(const std::vector<std::string>& arguments, Streams /*streams*/) {
  auto words = arguments;
  words.insert(words.begin(), "bench");
  become_sibling("lockstep-data", words);
}

constexpr std::array kVerbs{
    Verb{"data", "the input of a training step", run_bench_data},
};

}  // namespace

int run_bench(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("bench", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
