// `lockstep bench <verb>`: measurements on this machine. One line a verb.
#include <array>

#include "cli/bench/comm/comm.h"
#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep bench: measure this machine\n"
    "\n"
    "  bench comm          collectives among ranks, beside Gloo and Open MPI\n"
    "  bench data FILE…    how fast batches come, where the time goes, which knob to turn\n"
    "\n"
    "Each explains itself: `lockstep bench comm --help`.\n"
    "\n"
    "Examples:\n"
    "  lockstep bench comm -n 2 --compare gloo,mpi\n"
    "  lockstep bench data train.bin --batch 32 --window 256\n";

int run_bench_data(const std::vector<std::string>& arguments, Streams /*streams*/) {
  auto words = arguments;
  words.insert(words.begin(), "bench");
  become_sibling("lockstep-data", words);
}

constexpr std::array kVerbs{
    Verb{"comm", "collectives among ranks of this machine", run_bench_comm},
    Verb{"data", "the input of a training step", run_bench_data},
    Verb{"comm-rank", "", run_bench_comm_rank},  // what comm starts; help does not name it
};

}  // namespace

int run_bench(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("bench", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
