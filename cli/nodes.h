// The options of a job on several nodes, for the verbs that start one. Those of torchrun have its
// names, with dashes or underscores.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/rendezvous/network_settings.h"

namespace lockstep::cli {

struct NodeOptions {
  int num_nodes = 1;
  std::optional<int> node_rank;                // required for several nodes
  std::optional<Endpoint> rendezvous;          // likewise
  std::string secret_file;                     // empty: LOCKSTEP_SECRET_FILE, then that of the user
  std::chrono::milliseconds timeout{300'000};  // of the rendezvous of all nodes
  NetworkSettings network;
};

class NodeArguments {
 public:
  /// Declares the options; this object must outlive `arguments`.
  void declare(Arguments& arguments);

  /// The values, after `arguments` was read. Throws UsageError that names the option.
  [[nodiscard]] NodeOptions read() const;

 private:
  [[nodiscard]] std::string rendezvous() const;

  NodeOptions options_;
  std::string rendezvous_;
  std::string master_address_;
  std::string master_port_;
  std::string timeout_ = "5min";
  std::string ports_;
  std::string heartbeat_ = "3s";
  int node_rank_ = -1;
  bool standalone_ = false;
};

}  // namespace lockstep::cli
