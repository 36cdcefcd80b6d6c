#include "cli/nodes.h"

#include <fmt/format.h>

#include "cli/duration.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

void NodeArguments::declare(Arguments& arguments) {
  arguments.option("--nnodes", options_.num_nodes);
  arguments.option("--node-rank,--node_rank", node_rank_);
  arguments.option("--rendezvous,--rdzv-endpoint,--rdzv_endpoint", rendezvous_);
  arguments.option("--master-addr,--master_addr", master_address_);
  arguments.option("--master-port,--master_port", master_port_);
  arguments.flag("--standalone", standalone_);
  arguments.option("--secret-file", options_.secret_file);
  arguments.option("--timeout", timeout_);
  arguments.option("--interface", options_.network.interface);
  arguments.option("--ports", ports_);
  arguments.option("--heartbeat", heartbeat_);
  arguments.flag("--encrypt", options_.network.encrypts);
  arguments.option("--stripes", options_.network.stripes, {1, kMaxStripes});
}

std::string NodeArguments::rendezvous() const {
  if (master_address_.empty() && master_port_.empty()) return rendezvous_;
  if (!rendezvous_.empty()) {
    throw UsageError("--rendezvous and --master-addr are both given; give one");
  }
  return fmt::format("{}:{}", master_address_, master_port_.empty() ? "29500" : master_port_);
}

NodeOptions NodeArguments::read() const {
  auto options = options_;
  options.timeout = parse_duration("--timeout", timeout_);
  if (!ports_.empty()) {
    try {
      options.network.ports = PortRange::parse(ports_);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("--ports: {}", error.what()));
    }
  }
  options.network.heartbeat = parse_duration("--heartbeat", heartbeat_);
  expect_heartbeat("--heartbeat", options.network.heartbeat);
  if (options.num_nodes < 1) {
    throw UsageError(fmt::format("--nnodes is {}, expected at least 1", options.num_nodes));
  }
  const auto meeting = rendezvous();
  if (options.num_nodes == 1) return options;  // the ranks of one node meet on loopback
  if (standalone_) {
    throw UsageError(fmt::format(
        "--standalone is for one node, but --nnodes is {}: give one of them", options.num_nodes));
  }
  if (meeting.empty() || node_rank_ < 0) {
    throw UsageError(
        fmt::format("--nnodes {} needs --node-rank (0 to {}) and --rendezvous HOST:PORT; HOST is "
                    "node 0, the same on every node",
                    options.num_nodes, options.num_nodes - 1));
  }
  if (node_rank_ >= options.num_nodes) {
    throw UsageError(
        fmt::format("--node-rank is {}, expected 0 to {}", node_rank_, options.num_nodes - 1));
  }
  options.node_rank = node_rank_;
  options.rendezvous = Endpoint::parse(meeting);
  return options;
}

}  // namespace lockstep::cli
