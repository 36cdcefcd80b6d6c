#include "cli/run/options.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/arguments.h"
#include "cli/duration.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

// Values that are still text.
struct Texts {
  std::string ranks = "auto";
  std::string color = "auto";
  std::string grace = "30s";
  int metrics_port = -1;
  bool no_python = false;
  bool no_pin = false;
};

void declare(Arguments& arguments, RunCommandOptions& options, Texts& texts) {
  arguments.option("-n,--nproc-per-node,--nproc_per_node", texts.ranks);
  arguments.flag("--no-python,--no_python", texts.no_python);
  arguments.flag("--no-pin", texts.no_pin);
  arguments.flag("--allow-shared-gpu", options.allow_shared_gpu);
  arguments.option("--show-ranks", options.show_ranks);
  arguments.option("--color", texts.color);
  arguments.option("--grace", texts.grace);
  arguments.option("--max-restarts,--max_restarts", options.max_restarts);
  arguments.option("--run-dir", options.run_dir);
  arguments.option("--metrics-port,--metrics_port", texts.metrics_port, {0, 65535});
}

void parse_ranks(const std::string& text, RunCommandOptions& options) {
  if (text == "auto") {
    options.ranks = Ranks::automatic;
  } else if (text == "cpu") {
    options.ranks = Ranks::per_core;
  } else if (text == "gpu") {
    options.ranks = Ranks::per_gpu;
  } else {
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, options.num_ranks);
    constexpr int most = 4096;
    if (error != std::errc{} || stopped != end || options.num_ranks < 1 ||
        options.num_ranks > most) {
      throw UsageError(fmt::format(
          "-n is \"{}\", expected a number from 1 to {}, gpu (one rank per GPU), cpu (one rank per "
          "core) or auto",
          text, most));
    }
    options.ranks = Ranks::count;
  }
}

ColorChoice parse_color(const std::string& text) {
  if (text == "auto") return ColorChoice::automatic;
  if (text == "always") return ColorChoice::always;
  if (text == "never") return ColorChoice::never;
  throw UsageError(fmt::format("--color is \"{}\", expected auto, always or never", text));
}

}  // namespace

RunCommandOptions parse_run_options(const std::vector<std::string>& arguments) {
  RunCommandOptions options;
  Texts texts;
  Arguments declared("run", options.help);
  declare(declared, options, texts);
  NodeArguments nodes;
  nodes.declare(declared);
  // The first word that is not an option is the program; the words after it are its arguments.
  options.command = declared.read_leading(arguments);
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  }
  if (options.help) return options;
  if (!options.command.empty() && options.command.front().starts_with("-")) {
    declared.refuse(options.command.front());
  }
  if (options.command.empty()) {
    throw UsageError(
        "no program is given; `lockstep run -n 4 ./my_program arguments` starts it as four ranks");
  }
  parse_ranks(texts.ranks, options);
  options.nodes = nodes.read();
  options.pin = !texts.no_pin;
  options.color = parse_color(texts.color);
  options.grace = parse_duration("--grace", texts.grace);
  if (texts.metrics_port >= 0) {
    options.metrics_port = static_cast<std::uint16_t>(texts.metrics_port);
  }
  if (options.max_restarts < 0) {
    throw UsageError(fmt::format("--max-restarts is {}, expected 0 or more", options.max_restarts));
  }
  return options;
}

std::string run_help() {
  return "lockstep run [options] PROGRAM [arguments]: start PROGRAM as ranks\n"
         "\n"
         "  -n, --nproc-per-node N  ranks on this node: number, gpu, cpu (one per core) or\n"
         "                          auto: gpu if there are GPUs, else cpu (default auto)\n"
         "  --nnodes K              nodes; run this command on each of them (default 1)\n"
         "  --node-rank R           rank of this node, 0 to K-1\n"
         "  --rendezvous HOST:PORT  where the nodes meet; HOST is node 0\n"
         "  --interface NET[,NET]   interfaces, addresses or networks for data of ranks\n"
         "  --ports 40000-40100     ports at which ranks listen (default any)\n"
         "  --heartbeat T           a rank that is silent for T is lost (default 3s)\n"
         "  --encrypt  --stripes N  encrypt data between hosts; N connections per pair\n"
         "  --secret-file FILE      secret of the job, mode 0600 (default: your own)\n"
         "  --max-restarts N        restarts after a rank has failed (default 0: none)\n"
         "  --grace T               time between SIGTERM and SIGKILL (default 30s)\n"
         "  --timeout T             time for all nodes to meet (default 5min)\n"
         "  --run-dir DIR           logs (default runs/<program>-<time>-<token>)\n"
         "  --metrics-port PORT     serve metrics to Prometheus on loopback (0: any)\n"
         "  --show-ranks 0,3-5      ranks to show; the log files have all (default all)\n"
         "  --color WHEN            auto, always or never (default auto)\n"
         "  --no-pin  --allow-shared-gpu  no pinning to cores; more ranks than GPUs\n"
         "\n"
         "Examples\n"
         "  lockstep run -n 4 --max-restarts 2 ./train --epochs 3\n"
         "  lockstep run --nnodes 2 --node-rank 0 --rendezvous node0:29400 ./train\n";
}

}  // namespace lockstep::cli
