#include "lockstep/net/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Exchanges the messages of both sides until both are authenticated. Bytes are fed as they arrive,
// so a peer with another protocol is refused even if it never sends a complete message.
void exchange(Socket& socket, Handshake& handshake, Deadline deadline) {
  std::array<std::byte, 64> buffer{};
  for (;;) {
    socket.send_all(handshake.release_output(), deadline);
    if (handshake.done()) return;
    const auto wanted = std::span(buffer).first(std::min(handshake.wanted(), buffer.size()));
    const auto count = socket.try_receive(wanted);
    if (!count) {
      socket.wait_readable(deadline);
    } else if (*count == 0) {
      throw SystemError("the connection was closed", ECONNRESET);
    } else {
      (void)handshake.feed(wanted.first(*count));
    }
  }
}

// The same error described for the handshake: a side that refuses the other closes the connection
// without sending a reason.
SystemError in_handshake(const SystemError& error, const std::string& peer) {
  if (error.error_number() == ETIMEDOUT) {
    return {fmt::format("waited for the handshake of {} until the deadline", peer), ETIMEDOUT};
  }
  return {
      fmt::format("{} closed the connection during the handshake, as a process with a different "
                  "secret, job or round does",
                  peer),
      error.error_number()};
}

}  // namespace

Channel Channel::connect(Socket socket, const Secret& secret, const HandshakeContext& context,
                         Deadline deadline) {
  return shake_hands(std::move(socket), Handshake::client(secret, context), deadline);
}

Channel Channel::accept(Socket socket, const Secret& secret, const HandshakeContext& context,
                        Deadline deadline) {
  return shake_hands(std::move(socket), Handshake::server(secret, context), deadline);
}

void Channel::send(std::span<const std::byte> message, Deadline deadline) {
  if (cut_off_) {
    throw SystemError(
        fmt::format("cannot send to {}: an earlier message was sent only in part", peer()), EPIPE);
  }
  const auto frame = sealer_.seal(message);
  cut_off_ = true;
  socket_.send_all(frame, deadline);
  cut_off_ = false;
}

std::vector<std::byte> Channel::receive(Deadline deadline) {
  std::array<std::byte, 64u << 10> buffer;
  for (;;) {
    if (auto message = opener_.try_next()) return std::move(*message);
    const auto wanted = std::span(buffer).first(std::min(opener_.wanted(), buffer.size()));
    const auto count = socket_.try_receive(wanted);
    if (!count) {
      socket_.wait_readable(deadline);
    } else if (*count == 0) {
      throw SystemError(fmt::format("{} closed the connection", peer()), ECONNRESET);
    } else {
      opener_.feed(wanted.first(*count));
    }
  }
}

Channel::Channel(Socket socket, const SessionKeys& keys)
    : socket_(std::move(socket)),
      sealer_(keys.sending),
      opener_(keys.receiving, kMaxFrameBytes, socket_.peer()) {}

Channel Channel::shake_hands(Socket socket, Handshake handshake, Deadline deadline) {
  try {
    exchange(socket, handshake, deadline);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", socket.peer(), error.what()));
  } catch (const SystemError& error) {
    throw in_handshake(error, socket.peer());
  }
  return {std::move(socket), handshake.keys()};
}

}  // namespace lockstep
