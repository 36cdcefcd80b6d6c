// Memory that the ranks of one host share to prove that they can share memory: one nonce per rank,
// 32 bytes that the rank writes. One rank allocates it and sends its descriptor to every
// process of the same user that connects to an abstract Unix socket.
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
  /// Allocates `count` nonces. Throws SystemError.
  explicit SharedPage(std::size_t count);
  /// Maps the page of another process. Throws as SharedMemory.
  SharedPage(FileDescriptor memory, std::size_t count);

  void write(std::size_t index, const HandshakeNonce& value) noexcept;
  [[nodiscard]] HandshakeNonce read(std::size_t index) const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return memory_.descriptor(); }

 private:
  [[nodiscard]] std::uint64_t* words_of(std::size_t index) const noexcept;

  SharedMemory memory_;
};

/// Sends `page` to processes that connect to a Unix socket with a random name, until destroyed.
class PageServer {
 public:
  /// `page` must outlive this. Throws SystemError.
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

/// Requests the page of a PageServer. Throws UsageError when the server belongs to another user;
/// SystemError when it does not answer.
[[nodiscard]] FileDescriptor request_page(const std::string& name, Deadline deadline);

}  // namespace lockstep
