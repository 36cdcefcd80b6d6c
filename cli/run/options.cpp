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
  std::string rendezvous;
  std::string master_address;
  std::string master_port;
  std::string color = "auto";
  std::string grace = "30s";
  std::string timeout = "5min";
  int node_rank = -1;
  bool standalone = false;
  bool no_python = false;
  bool no_pin = false;
};

void declare(Arguments& arguments, RunCommandOptions& options, Texts& texts) {
  arguments.option("-n,--nproc-per-node,--nproc_per_node", texts.ranks);
  arguments.option("--nnodes", options.num_nodes);
  arguments.option("--node-rank,--node_rank", texts.node_rank);
  arguments.option("--rendezvous,--rdzv-endpoint,--rdzv_endpoint", texts.rendezvous);
  arguments.option("--master-addr,--master_addr", texts.master_address);
  arguments.option("--master-port,--master_port", texts.master_port);
  arguments.flag("--standalone", texts.standalone);
  arguments.flag("--no-python,--no_python", texts.no_python);
  arguments.flag("--no-pin", texts.no_pin);
  arguments.flag("--allow-shared-gpu", options.allow_shared_gpu);
  arguments.option("--show-ranks", options.show_ranks);
  arguments.option("--color", texts.color);
  arguments.option("--grace", texts.grace);
  arguments.option("--timeout", texts.timeout);
  arguments.option("--max-restarts,--max_restarts", options.max_restarts);
  arguments.option("--run-dir", options.run_dir);
  arguments.option("--secret-file", options.secret_file);
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

void parse_nodes(const Texts& texts, RunCommandOptions& options) {
  if (options.num_nodes < 1) {
    throw UsageError(fmt::format("--nnodes is {}, expected at least 1", options.num_nodes));
  }
  auto rendezvous = texts.rendezvous;
  if (!texts.master_address.empty() || !texts.master_port.empty()) {
    if (!rendezvous.empty()) {
      throw UsageError("--rendezvous and --master-addr are both given; give one");
    }
    rendezvous = fmt::format("{}:{}", texts.master_address,
                             texts.master_port.empty() ? "29500" : texts.master_port);
  }
  if (options.num_nodes == 1) return;  // the ranks of one node meet on the loopback interface
  if (texts.standalone) {
    throw UsageError(fmt::format(
        "--standalone is for one node, but --nnodes is {}: give one of them", options.num_nodes));
  }
  if (rendezvous.empty() || texts.node_rank < 0) {
    throw UsageError(
        fmt::format("--nnodes {} needs --node-rank (0 to {}) and --rendezvous HOST:PORT; HOST is "
                    "node 0, the same on every node",
                    options.num_nodes, options.num_nodes - 1));
  }
  if (texts.node_rank >= options.num_nodes) {
    throw UsageError(
        fmt::format("--node-rank is {}, expected 0 to {}", texts.node_rank, options.num_nodes - 1));
  }
  options.node_rank = texts.node_rank;
  options.rendezvous = Endpoint::parse(rendezvous);
}

}  // namespace

RunCommandOptions parse_run_options(const std::vector<std::string>& arguments) {
  RunCommandOptions options;
  Texts texts;
  Arguments declared("run", options.help);
  declare(declared, options, texts);
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
  parse_nodes(texts, options);
  options.pin = !texts.no_pin;
  options.color = parse_color(texts.color);
  options.grace = parse_duration("--grace", texts.grace);
  options.timeout = parse_duration("--timeout", texts.timeout);
  if (options.max_restarts < 0) {
    throw UsageError(fmt::format("--max-restarts is {}, expected 0 or more", options.max_restarts));
  }
  return options;
}

std::string run_help() {
  return "lockstep run [options] PROGRAM [arguments]: start PROGRAM as ranks\n"
         "\n"
         "  -n, --nproc-per-node N  ranks on this node: a number, gpu (one per GPU), cpu\n"
         "                          (one per core), or auto: gpu if there are GPUs, else\n"
         "                          cpu (default auto)\n"
         "  --nnodes K              nodes; run this command on each of them (default 1)\n"
         "  --node-rank R           rank of this node, 0 to K-1\n"
         "  --rendezvous HOST:PORT  where the nodes meet; HOST is node 0 (torchrun's\n"
         "                          --rdzv-endpoint is the same)\n"
         "  --secret-file FILE      secret of the job, mode 0600 (default: your own)\n"
         "  --max-restarts N        restarts after a rank has failed (default 0: none)\n"
         "  --grace T               time between SIGTERM and SIGKILL (default 30s)\n"
         "  --timeout T             time for all nodes to meet (default 5min)\n"
         "  --run-dir DIR           logs (default runs/<program>-<time>-<token>)\n"
         "  --show-ranks 0,3-5      ranks to show on the terminal (default all); the log\n"
         "                          files have all ranks\n"
         "  --color WHEN            auto, always or never (default auto)\n"
         "  --no-pin                do not pin ranks to cores\n"
         "  --allow-shared-gpu      allow more ranks than GPUs\n"
         "\n"
         "Examples\n"
         "  lockstep run -n 4 --max-restarts 2 ./train --epochs 3\n"
         "  lockstep run --nnodes 2 --node-rank 0 --rendezvous node0:29400 ./train\n";
}

}  // namespace lockstep::cli
