#include "lockstep/launch/metrics_listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <span>
#include <string_view>

#include "lockstep/base/crash_handler.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// One client at a time: a slow one delays the others by this time at most.
constexpr std::chrono::seconds kRequestLimit{2};
constexpr std::size_t kMaxRequestBytes = 8192;

std::string answer(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "X-Content-Type-Options: nosniff\r\n\r\n{}",
      status, type, body.size(), body);
}

std::string plain(std::string_view status, std::string_view body) {
  return answer(status, "text/plain; charset=utf-8", body);
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// The value of a header; empty without one.
std::string header_of(const std::string& request, std::string_view name) {
  for (std::size_t begin = request.find("\r\n"); begin != std::string::npos;) {
    begin += 2;
    const auto end = std::min(request.find("\r\n", begin), request.size());
    const auto line = std::string_view(request).substr(begin, end - begin);
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && lower(line.substr(0, colon)) == name) {
      auto value = line.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      while (value.ends_with(' ')) value.remove_suffix(1);
      return lower(value);
    }
    begin = end >= request.size() ? std::string::npos : end;
  }
  return "";
}

bool is_this_machine(std::string host) {
  if (const auto colon = host.rfind(':'); colon != std::string::npos) host.resize(colon);
  return host.empty() || host == "127.0.0.1" || host == "localhost";
}

}  // namespace

std::string answer_to(const std::string& request, const std::function<std::string()>& text) {
  const auto first = request.substr(0, request.find("\r\n"));
  const auto space = first.find(' ');
  const auto method = first.substr(0, space);
  const auto rest = space == std::string::npos ? "" : first.substr(space + 1);
  const auto target = rest.substr(0, rest.find(' '));
  if (rest.find(" HTTP/1.") == std::string::npos) {
    return plain("400 Bad Request", "not a request of HTTP/1\n");
  }
  if (!is_this_machine(header_of(request, "host"))) {
    return plain("403 Forbidden", "ask for localhost or 127.0.0.1\n");
  }
  if (method != "GET") return plain("405 Method Not Allowed", "only GET is served\n");
  const auto path = target.substr(0, target.find('?'));
  if (path == "/metrics") return answer("200 OK", "text/plain; version=0.0.4", text());
  return plain("404 Not Found", "the metrics are at /metrics\n");
}

MetricsListener::MetricsListener(std::uint16_t port, std::function<std::string()> text)
    : listener_(Listener::tcp("127.0.0.1", port)),
      text_(std::move(text)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw SystemError("cannot create an eventfd", errno);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

MetricsListener::~MetricsListener() {
  thread_.request_stop();
  ::eventfd_write(stop_.number(), 1);
}

void MetricsListener::serve(const std::stop_token& stop) {
  const AlternateSignalStack stack;
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> events{pollfd{listener_.number(), POLLIN, 0},
                                 pollfd{stop_.number(), POLLIN, 0}};
    if (::poll(events.data(), events.size(), -1) < 0 && errno != EINTR) return;
    try {
      if (auto socket = listener_.try_accept()) attend(*socket, stop);
    } catch (const SystemError&) {  // the client has left, or descriptors have run out
      std::array<pollfd, 1> pause{pollfd{stop_.number(), POLLIN, 0}};
      ::poll(pause.data(), pause.size(), 100);
    }
  }
}

void MetricsListener::attend(Socket& socket, const std::stop_token& stop) const {
  const auto deadline = Deadline::after(kRequestLimit);
  std::string request;
  std::array<char, 1024> buffer{};
  while (request.find("\r\n\r\n") == std::string::npos) {
    std::array<pollfd, 2> events{pollfd{socket.number(), POLLIN, 0},
                                 pollfd{stop_.number(), POLLIN, 0}};
    if (::poll(events.data(), events.size(), deadline.poll_milliseconds()) == 0) return;
    if (stop.stop_requested()) return;
    const auto count = socket.try_receive(std::as_writable_bytes(std::span(buffer)));
    if (!count) continue;
    if (*count == 0) return;
    request.append(buffer.data(), *count);
    if (request.size() > kMaxRequestBytes) return;
  }
  const auto reply = answer_to(request, text_);
  socket.send_all(std::as_bytes(std::span(reply)), deadline);
}

}  // namespace lockstep
