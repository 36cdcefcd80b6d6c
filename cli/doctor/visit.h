// Whether two nodes reach each other, how their clocks differ and how fast their link is. Each node
// has a host, which listens on a free port; the other node visits it. A visitor proves that it
// belongs to the job by a token, which travels through the job's store.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "cli/doctor/facts.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/listener.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep::cli {

class VisitHost {
 public:
  using WallClock = std::function<std::chrono::nanoseconds()>;  // since 1970

  /// Listens on `address`. Throws SystemError.
  explicit VisitHost(const std::string& address, WallClock clock = {});
  VisitHost(const VisitHost&) = delete;
  VisitHost& operator=(const VisitHost&) = delete;
  ~VisitHost();

  /// "10.0.0.1:4711 <token>", for visit().
  [[nodiscard]] std::string invitation() const;

 private:
  void serve(const std::stop_token& stop);
  void attend(Socket& socket) const;

  Listener listener_;
  std::string token_;
  WallClock clock_;
  FileDescriptor stop_;  // an eventfd
  std::jthread thread_;
};

enum class VisitKind {
  knock,   // only whether the host is reached
  measure  // clocks and the rate of the link too
};

/// Visits a host. A failure is a fact of the result.
[[nodiscard]] LinkFacts visit(const std::string& invitation, VisitKind kind, Deadline deadline);

/// The link between node 0 and each other node, in both directions. Collective: one rank per node
/// calls this, the first of its node. Returns nullopt on node 0. `host` is that of this node.
[[nodiscard]] std::optional<LinkFacts> check_links(const World& world, const VisitHost& host,
                                                   Deadline deadline);

}  // namespace lockstep::cli
