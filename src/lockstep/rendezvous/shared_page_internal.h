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

namespace lockstep {

class SharedPage {
 public:
  /// New memory of `num_slots` slots. Throws SystemError.
  explicit SharedPage(std::size_t num_slots);
  /// What another process made. Throws UsageError unless it has the size, and can never lose it;
  /// SystemError when it cannot be mapped.
  SharedPage(FileDescriptor memory, std::size_t num_slots);
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage();

  void write(std::size_t slot, const HandshakeNonce& value) noexcept;
  [[nodiscard]] HandshakeNonce read(std::size_t slot) const noexcept;
  [[nodiscard]] int descriptor() const noexcept { return memory_.number(); }

 private:
  void map();

  FileDescriptor memory_;
  std::size_t num_slots_;
  std::uint64_t* words_ = nullptr;  // the mapping
};

/// Gives `page` away at a Unix socket of a random name until destroyed.
class PageServer {
 public:
  /// `page` outlives it. Throws SystemError.
  explicit PageServer(const SharedPage& page);
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;
  ~PageServer();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  void serve(const std::stop_token& stop);

  const SharedPage& page_;
  std::string name_;
  Listener listener_;
  FileDescriptor stop_;  // an eventfd
  std::jthread thread_;
};

/// Asks a PageServer for its page. Throws UsageError when the server is another user's, or as
/// SharedPage does; SystemError when nobody answers.
[[nodiscard]] FileDescriptor ask_for_page(const std::string& name, Deadline deadline);

}  // namespace lockstep
