// `lockstep bench <verb>`: measurements of this machine and its network. One line per verb.
#include <array>

#include "cli/bench/comm/comm.h"
#include "cli/bench/link/link.h"
#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep bench: measure this machine\n"
    "\n"
    "  bench comm          time of collectives among ranks, compared with Gloo and Open MPI\n"
    "  bench link          latency and rate between ranks, with advice on chunks and connections\n"
    "  bench data FILE…    batches per second, where the time is spent, which option to change\n"
    "\n"
    "Options of each: `lockstep bench comm --help`, `lockstep bench link --help`, `lockstep bench\n"
    "data --help`.\n"
    "\n"
    "Examples\n"
    "  lockstep bench comm -n 2 --compare gloo,mpi\n"
    "  lockstep bench data train.bin --batch 32 --window 256\n";

int run_bench_data(const std::vector<std::string>& arguments, Streams /*streams*/) {
  auto words = arguments;
  words.insert(words.begin(), "bench");
  become_sibling("lockstep-data", words);
}

constexpr std::array kVerbs{
    Verb{"comm", "collectives among ranks", run_bench_comm},
    Verb{"link", "the network between ranks", run_bench_link},
    Verb{"data", "the input of a training step", run_bench_data},
    Verb{"comm-rank", "", run_bench_comm_rank},  // started by comm; not listed in the help
};

}  // namespace

int run_bench(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("bench", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
