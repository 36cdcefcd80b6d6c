// Moves a PlainExchange with io_uring, for one thread: the kernel moves the bytes while the thread
// sleeps in it. Written on the system calls, so that the benchmark needs no library.
#pragma once

#include <linux/io_uring.h>

#include <cstddef>
#include <memory>

#include "lockstep/base/file_descriptor.h"
#include "plain_stream.h"

namespace lockstep {

class UringMover {
 public:
  /// Null where the kernel has or allows no io_uring.
  [[nodiscard]] static std::unique_ptr<UringMover> try_make();
  UringMover(const UringMover&) = delete;
  UringMover& operator=(const UringMover&) = delete;
  ~UringMover();

  /// Returns when all has moved, in requests of at most `most` bytes. Throws SystemError.
  void move(int socket, PlainExchange& exchange, std::size_t most);

 private:
  struct Ring {
    std::byte* start = nullptr;
    std::size_t bytes = 0;
  };

  UringMover(FileDescriptor ring, const io_uring_params& parameters);
  [[nodiscard]] std::byte* map(std::size_t bytes, long offset) const;
  void submit(int socket, bool sends, void* bytes, std::size_t length);
  /// Sleeps until a request has ended.
  void enter();

  FileDescriptor ring_;
  io_uring_params parameters_;
  Ring queues_;
  Ring entries_;
  unsigned submitted_ = 0;
};

}  // namespace lockstep
