// A piece of memory that the ranks of one host share to prove that they can: a slot for each, into
// which it writes 32 bytes. One rank makes it and gives its descriptor to whoever of the same user
// asks at an abstract Unix socket.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "lockstep/base/deadline.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/net/handshake.h"
#include "lockstep/net/listener.h"
#include "lockstep/net/shared_memory.h"

namespace lockstep {

class SharedPage {
 public:
  /// New memory of `num_slots` slots. Throws SystemError.
  explicit SharedPage(std::size_t num_slots);
  /// What another process made. Throws as SharedMemory.
  SharedPage(FileDescriptor memory, std::size_t num_slots);

  void write(std::size_t slot, const HandshakeNonce& value) noexcept;
  [[nodiscard]] HandshakeNonce read(std::size_t slot) const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return memory_.descriptor(); }

 private:
  [[nodiscard]] std::uint64_t* slot_words(std::size_t slot) const noexcept;

  SharedMemory memory_;
};

/// Gives `page` away at a Unix socket of a random name until destroyed.
class PageServer {
 public:
  /// `page` outlives it. Throws SystemError.
  explicit PageServer(const SharedPage& page);
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;
  ~PageServer();

  [[nodiscard]] std::string name() const { return listener_.unix_name(); }

 private:
  void serve(const std::stop_token& stop);

  const SharedPage& page_;
  Listener listener_;
  FileDescriptor stop_;  // an eventfd
  std::jthread thread_;
};

/// Asks a PageServer for its page. Throws UsageError when the server is another user's, or as
/// SharedPage does; SystemError when nobody answers.
[[nodiscard]] FileDescriptor ask_for_page(const std::string& name, Deadline deadline);

}  // namespace lockstep
