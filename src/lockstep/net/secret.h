// 32 bytes that prove to belong to a job: whoever knows them is let in. A Secret is moved, never
// copied by accident, wiped when it goes away, and cannot be printed; it is in
// no core dump, and a process that is forked does not have it. It travels by a file of mode
// 0600 or by an inherited descriptor; never in arguments, the environment, logs or messages.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  /// A new one, from the kernel's random numbers. Throws SystemError.
  [[nodiscard]] static Secret random();

  /// A copy of `bytes`, which stay the caller's to wipe.
  [[nodiscard]] static Secret from_bytes(std::span<const std::byte, kBytes> bytes);

  /// Reads what to_descriptor made. `descriptor` stays open and the place in it is not moved, so
  /// that processes that inherited one descriptor all can read it.
  /// Throws UsageError when it is not open or no file of 32 bytes.
  [[nodiscard]] static Secret from_descriptor(int descriptor);

  /// Reads a file of 64 hexadecimal digits, with or without an end of line.
  /// Throws UsageError for a file that belongs to another user, lets group or others in (the
  /// message says how to close it), is not a regular file, or holds something else; SystemError
  /// when it cannot be read. A symbolic link is followed; the rules are for what it leads to.
  [[nodiscard]] static Secret from_file(const std::string& path);

  /// Reads `path` as from_file does, or makes it, with mode 0600 and a new secret, where it is not
  /// there; missing folders are made with mode 0700. Several processes may call this at once, on
  /// several machines that share the folder too: all get the same secret. Never writes to a file
  /// that is there, nor through a symbolic link.
  [[nodiscard]] static Secret create_or_read_file(const std::string& path);

  /// A sealed file in memory that holds the secret, for children to inherit; close-on-exec, so that
  /// only a child that is given it (dup2 to a number of its own) has it. Throws SystemError.
  [[nodiscard]] FileDescriptor to_descriptor() const;

  /// A second one with the same bytes.
  [[nodiscard]] Secret copy() const { return from_bytes(bytes()); }

  /// For computing keys; not to be stored or sent. Not for a Secret that was moved away.
  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept;

 private:
  using Bytes = std::array<std::byte, kBytes>;
  struct Wipe {
    void operator()(Bytes* bytes) const noexcept;
  };
  using Owned = std::unique_ptr<Bytes, Wipe>;

  // On a page of its own that is left out of core dumps and wiped in forked children: a supervisor
  // process executes no other program, and would keep a copy. Throws SystemError.
  [[nodiscard]] static Owned allocate();
  explicit Secret(Owned bytes) noexcept : bytes_(std::move(bytes)) {}

  Owned bytes_;  // a move leaves no copy behind, and a dump of the object shows nothing
};

}  // namespace lockstep
