// Serves a text to Prometheus: GET /metrics on a port of the loopback interface. Read-only, and the
// one listener of lockstep that does not ask for the job's secret: every process of this machine
// can read it. Requests that name another host than this machine are refused, so that a web page
// cannot read it through a browser.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/listener.h"

namespace lockstep {

/// The answer to a request, with its head. Pure but for `text`, which is called for GET /metrics
/// only. `request` is the head of a request, up to the empty line.
[[nodiscard]] std::string answer_to(const std::string& request,
                                    const std::function<std::string()>& text);

class MetricsListener {
 public:
  /// Listens on 127.0.0.1; port 0 selects a free one. `text` is called on a separate thread, once
  /// per request; it must not throw. Throws SystemError when the port is in use.
  MetricsListener(std::uint16_t port, std::function<std::string()> text);
  MetricsListener(const MetricsListener&) = delete;
  MetricsListener& operator=(const MetricsListener&) = delete;
  ~MetricsListener();

  [[nodiscard]] std::uint16_t port() const { return listener_.endpoint().port; }

 private:
  void serve(const std::stop_token& stop);
  void attend(Socket& socket, const std::stop_token& stop) const;

  Listener listener_;
  std::function<std::string()> text_;
  FileDescriptor stop_;  // an eventfd
  std::jthread thread_;
};

}  // namespace lockstep
