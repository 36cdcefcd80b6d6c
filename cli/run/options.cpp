#include "cli/run/options.h"

#include <fmt/format.h>

#include <charconv>

#include "cli/arguments.h"
#include "cli/duration.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

// What the options hold as text, before it is understood.
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

void declare(Arguments& arguments, LaunchOptions& options, Texts& texts) {
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

void understand_ranks(const std::string& text, LaunchOptions& options) {
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
          "-n is \"{}\", expected a number from 1 to {}, gpu (one rank a GPU), cpu (one "
          "a core) or auto",
          text, most));
    }
    options.ranks = Ranks::count;
  }
}

ColorChoice understand_color(const std::string& text) {
  if (text == "auto") return ColorChoice::automatic;
  if (text == "always") return ColorChoice::always;
  if (text == "never") return ColorChoice::never;
  throw UsageError(fmt::format("--color is \"{}\", expected auto, always or never", text));
}

void understand_nodes(const Texts& texts, LaunchOptions& options) {
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
  if (options.num_nodes == 1) return;  // one node meets on loopback, at a port of its own
  if (texts.standalone) {
    throw UsageError(
        fmt::format("--standalone means one node, but --nnodes is {}", options.num_nodes));
  }
  if (rendezvous.empty() || texts.node_rank < 0) {
    throw UsageError(
        fmt::format("--nnodes {} needs --node-rank (0 to {}) and --rendezvous HOST:PORT, the same "
                    "on every node, HOST "
                    "being node 0",
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

LaunchOptions parse_run_options(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  Texts texts;
  Arguments declared("run", options.help);
  declare(declared, options, texts);
  // The first word that is no option of ours is the program; what follows is its own.
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
        "no program was named; `lockstep run -n 4 ./my_program its arguments` runs four of it");
  }
  understand_ranks(texts.ranks, options);
  understand_nodes(texts, options);
  options.pin = !texts.no_pin;
  options.color = understand_color(texts.color);
  options.grace = parse_duration("--grace", texts.grace);
  options.timeout = parse_duration("--timeout", texts.timeout);
  if (options.max_restarts < 0) {
    throw UsageError(fmt::format("--max-restarts is {}, expected 0 or more", options.max_restarts));
  }
  return options;
}

std::string run_help() {
  return "lockstep run [options] program [its arguments]: starts the program as ranks and watches "
         "them\n"
         "\n"
         "  -n N | gpu | cpu | auto  ranks on this node: a number, one a GPU, one a core; auto: "
         "GPUs if any\n"
         "  --nnodes K               number of nodes; each runs this command\n"
         "  --node-rank R            this node, 0 to K-1\n"
         "  --rendezvous HOST:PORT   where the nodes meet; HOST is node 0\n"
         "  --secret-file FILE       the job's secret between nodes, mode 0600 (default: your "
         "own)\n"
         "  --max-restarts N         start all ranks again after a failure, at most N times\n"
         "  --grace 30s              from asking a rank to end to killing it\n"
         "  --timeout 5min           for all nodes to meet\n"
         "  --run-dir DIR            logs and records (default runs/<program>-<time>-<token>)\n"
         "  --show-ranks 0,3-5       only these on the terminal; the files have all\n"
         "  --color auto|always|never\n"
         "  --no-pin                 do not tie ranks to cores\n"
         "  --allow-shared-gpu       more ranks than GPUs, sharing them\n"
         "\n"
         "Examples:\n"
         "  lockstep run ./train --epochs 3\n"
         "  lockstep run -n 4 --max-restarts 2 ./train\n"
         "  lockstep run --nnodes 2 --node-rank 0 --rendezvous node0:29400 ./train   # and 1 on "
         "the other\n";
}

}  // namespace lockstep::cli
