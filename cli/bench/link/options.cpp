#include "cli/bench/link/options.h"

#include "cli/arguments.h"
#include "cli/duration.h"

namespace lockstep::cli {

BenchLinkOptions parse_bench_link_options(const std::vector<std::string>& arguments) {
  BenchLinkOptions options;
  std::string time;
  Arguments declared("bench link", options.help);
  declared.option("-n,--ranks", options.num_ranks, {2, 1024});
  declared.option("--seconds", time);
  declared.option("--json", options.json);
  declared.option("--svg", options.svg);
  declared.read(arguments);
  if (!options.help && !time.empty()) options.time = parse_duration("--seconds", time);
  return options;
}

std::string bench_link_help() {
  return "lockstep bench link [options]: measures the TCP links between ranks\n"
         "\n"
         "Latency, rate in both directions and retransmits of every pair of ranks; pairs that\n"
         "have no rank in common are measured at the same time. Advises chunk size and number\n"
         "of connections. Under a launcher it measures between the ranks of the job.\n"
         "\n"
         "  -n N                     ranks on this machine, without a launcher (default 2)\n"
         "  --seconds 300ms          time per pair, direction and number of connections\n"
         "  --json FILE  --svg FILE  hosts and links as JSON; matrices of rate and latency\n"
         "\n"
         "Examples\n"
         "  lockstep bench link -n 4\n"
         "  lockstep run --nnodes 2 --node-rank 0 --rendezvous node0:29400 -n 1 \\\n"
         "      lockstep bench link --json cluster.json --svg links.svg\n";
}

}  // namespace lockstep::cli
