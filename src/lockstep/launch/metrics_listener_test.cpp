#include "lockstep/launch/metrics_listener.h"

#include <gtest/gtest.h>

#include <span>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/rank_metrics.h"
#include "lockstep/net/socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

std::string text() { return "x 1\n"; }

std::string status_of(const std::string& request) {
  const auto reply = answer_to(request, text);
  return reply.substr(0, reply.find("\r\n"));
}

TEST(MetricsListener, OnlyGetMetricsOfThisMachineIsServed) {
  const auto reply = answer_to("GET /metrics HTTP/1.1\r\nHost: localhost:9000\r\n\r\n", text);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
  EXPECT_NE(reply.find("Content-Length: 4\r\n"), std::string::npos);
  EXPECT_TRUE(reply.ends_with("\r\n\r\nx 1\n"));
  EXPECT_EQ(status_of("GET /metrics?a=b HTTP/1.0\r\n\r\n"), "HTTP/1.1 200 OK");
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nhost:  127.0.0.1 \r\n\r\n"), "HTTP/1.1 200 OK");
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status_of("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(status_of("GET /metrics HTTP/1.1\r\nA: b\r\nHost: evil.example\r\n\r\n"),
            "HTTP/1.1 403 Forbidden");
  EXPECT_EQ(status_of("GARBAGE\r\n\r\n"), "HTTP/1.1 400 Bad Request");
}

std::string exchange(std::uint16_t port, const std::string& request) {
  auto socket = Socket::connect({"127.0.0.1", port}, Deadline::after(10s));
  socket.send_all(std::as_bytes(std::span(request)), Deadline::after(10s));
  std::string reply;
  std::array<char, 4096> buffer{};
  for (;;) {
    socket.wait_readable(Deadline::after(10s));
    try {
      const auto count = socket.try_receive(std::as_writable_bytes(std::span(buffer)));
      if (count == 0) return reply;
      if (count) reply.append(buffer.data(), *count);
    } catch (const SystemError&) {  // closed before it had read everything
      return reply;
    }
  }
}

TEST(MetricsListener, ASilentClientDelaysOthersByItsTimeLimitOnly) {
  int calls = 0;
  const MetricsListener listener(0, [&calls] { return "n " + std::to_string(++calls) + "\n"; });
  const auto silent = Socket::connect({"127.0.0.1", listener.port()}, Deadline::after(10s));
  for (const auto* expected : {"n 1\n", "n 2\n"}) {
    const auto reply = exchange(listener.port(), "GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(reply.ends_with(expected)) << reply;
  }
  EXPECT_EQ(exchange(listener.port(), std::string(20'000, 'x')), "");
}

TEST(MetricsListener, EndsAtOnceWhileAClientIsSilent) {
  auto listener = std::make_unique<MetricsListener>(0, text);
  const auto silent = Socket::connect({"127.0.0.1", listener->port()}, Deadline::after(10s));
  const auto begin = std::chrono::steady_clock::now();
  listener.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1500ms);  // the client's limit is 2 s
}

TEST(MetricsListener, AJobHasOneSampleOfEachKindPerRank) {
  RunState run;
  run.round = 2;
  run.ranks.push_back({.rank = 0,
                       .host = "h\"0",
                       .standing = RankStanding::running,
                       .pid = 7,
                       .memory_bytes = 4096,
                       .step = 812,
                       .part = StepPart::backward,
                       .age = 1500ms});
  run.ranks.push_back({.rank = 1, .node = 1, .host = "h1", .standing = RankStanding::stopped});
  const auto metrics = job_metrics(run, "/nowhere");
  const auto has = [&](const std::string& line) {
    EXPECT_NE(metrics.find("\n" + line + "\n"), std::string::npos) << line << "\n" << metrics;
  };
  has("lockstep_restarts_total 2");
  has(R"(lockstep_rank_up{rank="0",node="0",host="h\"0"} 1)");
  has(R"(lockstep_rank_up{rank="1",node="1",host="h1"} 0)");
  has(R"(lockstep_rank_stopped{rank="1",node="1",host="h1"} 1)");
  has(R"(lockstep_rank_step{rank="0",node="0",host="h\"0"} 812)");
  has(R"(lockstep_rank_part_age_seconds{rank="0",node="0",host="h\"0",part="backward"} 1.5)");
  EXPECT_EQ(metrics.find("lockstep_rank_step{rank=\"1\""), std::string::npos);
}

}  // namespace
}  // namespace lockstep
