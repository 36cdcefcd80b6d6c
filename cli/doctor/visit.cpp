#include "cli/doctor/visit.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/launch/run_folder.h"

namespace lockstep::cli {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::chrono::seconds kVisitLimit{5};
constexpr int kPings = 16;
constexpr std::uint64_t kPieceBytes = 1 << 20;
constexpr std::chrono::milliseconds kMeasureTime{300};

// A request of a visitor: ask for the time (0), or announce that many bytes.
using Word = std::uint64_t;

nanoseconds wall_clock() { return std::chrono::system_clock::now().time_since_epoch(); }

void send_word(Socket& socket, Word word, Deadline deadline) {
  socket.send_all(std::as_bytes(std::span(&word, 1)), deadline);
}

Word receive_word(Socket& socket, Deadline deadline) {
  Word word = 0;
  socket.receive_exactly(std::as_writable_bytes(std::span(&word, 1)), deadline);
  return word;
}

// The difference of the clocks, by the exchange with the shortest round trip.
void measure_clock(Socket& socket, LinkFacts& link, Deadline deadline) {
  double shortest = 1e9;
  for (int i = 0; i < kPings; ++i) {
    const auto sent = Steady::now();
    const auto own = wall_clock();
    send_word(socket, 0, deadline);
    const nanoseconds theirs(static_cast<std::int64_t>(receive_word(socket, deadline)));
    const double trip = std::chrono::duration<double>(Steady::now() - sent).count();
    if (trip >= shortest) continue;
    shortest = trip;
    // Their time was read between `own` and `own` + trip.
    link.clock_skew = std::chrono::duration<double>(own - theirs).count() + trip / 2;
    link.clock_error = trip / 2;
  }
}

double measure_rate(Socket& socket, Deadline deadline) {
  const std::vector<std::byte> piece(kPieceBytes);
  Word pieces = 0;
  const auto begin = Steady::now();
  while (Steady::now() - begin < kMeasureTime) {
    send_word(socket, kPieceBytes, deadline);
    socket.send_all(piece, deadline);
    ++pieces;
    (void)receive_word(socket, deadline);
  }
  return static_cast<double>(pieces * kPieceBytes) /
         std::chrono::duration<double>(Steady::now() - begin).count();
}

std::string key(int node, std::string_view what) { return fmt::format("doctor/{}/{}", node, what); }

}  // namespace

VisitHost::VisitHost(const std::string& address, WallClock clock)
    : listener_(Listener::tcp(address)),
      token_(random_token() + random_token() + random_token() + random_token()),
      clock_(clock ? std::move(clock) : wall_clock),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw SystemError("cannot create an eventfd", errno);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

VisitHost::~VisitHost() {
  thread_.request_stop();
  ::eventfd_write(stop_.number(), 1);
}

std::string VisitHost::invitation() const {
  return fmt::format("{} {}", listener_.endpoint().to_string(), token_);
}

void VisitHost::serve(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> events{pollfd{listener_.number(), POLLIN, 0},
                                 pollfd{stop_.number(), POLLIN, 0}};
    ::poll(events.data(), events.size(), -1);
    try {
      if (auto socket = listener_.try_accept()) attend(*socket);
    } catch (const Error&) {  // the visitor reports it
    }
  }
}

void VisitHost::attend(Socket& socket) const {
  const auto deadline = Deadline::after(kVisitLimit);
  std::string token(token_.size(), '\0');
  socket.receive_exactly(std::as_writable_bytes(std::span(token)), deadline);
  if (token != token_) return;
  std::vector<std::byte> piece(kPieceBytes);
  for (;;) {
    const auto request = receive_word(socket, deadline);
    if (request > kPieceBytes) return;
    socket.receive_exactly(std::span(piece).first(request), deadline);
    send_word(socket, static_cast<Word>(clock_().count()), deadline);
  }
}

LinkFacts visit(const std::string& invitation, VisitKind kind, Deadline deadline) {
  LinkFacts link;
  const auto space = invitation.find(' ');
  const auto address = invitation.substr(0, space);
  const auto token = invitation.substr(std::min(space + 1, invitation.size()));
  try {
    auto socket = Socket::connect(Endpoint::parse(address), deadline);
    socket.send_all(std::as_bytes(std::span(token)), deadline);
    measure_clock(socket, link, deadline);
    if (kind == VisitKind::measure) link.bytes_per_second = measure_rate(socket, deadline);
  } catch (const Error& error) {
    link.failure = fmt::format("{} is not reached: {}", address, error.what());
  }
  return link;
}

std::optional<LinkFacts> check_links(const World& world, const VisitHost& host, Deadline deadline) {
  auto& store = world.store();
  store.set(key(world.node(), "host"), host.invitation(), deadline);
  const auto limit = [&] { return std::min(deadline, Deadline::after(kVisitLimit)); };
  if (world.node() == 0) {
    for (int node = 1; node < world.num_nodes(); ++node) {
      const auto link =
          visit(store.get_text(key(node, "host"), deadline), VisitKind::knock, limit());
      store.set(key(node, "reached"), link.failure, deadline);
    }
    return std::nullopt;
  }
  auto link = visit(store.get_text(key(0, "host"), deadline), VisitKind::measure, limit());
  if (!link.failure.empty())
    link.failure = fmt::format("from node {}: {}", world.node(), link.failure);
  const auto back = store.get_text(key(world.node(), "reached"), deadline);
  if (link.failure.empty() && !back.empty()) link.failure = "from node 0: " + back;
  return link;
}

}  // namespace lockstep::cli
