// The secret of a job: 32 bytes. A process that knows them is accepted as a member of the job. A
// Secret is move-only, wiped on destruction, and not printable. Core dumps do not contain it, and
// forked processes do not inherit it. It is passed by a file of mode 0600 or by an inherited
// descriptor; never in arguments, the environment, logs or messages.
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

  /// A new random secret. Throws SystemError.
  [[nodiscard]] static Secret random();

  /// A copy of `bytes`; the caller wipes its own.
  [[nodiscard]] static Secret from_bytes(std::span<const std::byte, kBytes> bytes);

  /// Reads the file that to_descriptor() created. `descriptor` stays open and its file offset does
  /// not change, so that all processes that inherited it can read it.
  /// Throws UsageError when it is not open or is not a file of 32 bytes.
  [[nodiscard]] static Secret from_descriptor(int descriptor);

  /// Reads a file of 64 hexadecimal digits, with or without an end of line. A symbolic link is
  /// followed; the rules apply to its target.
  /// Throws UsageError for a file that belongs to another user, gives access to group or others
  /// (the message names the command that removes it), is not a regular file, or has other content;
  /// SystemError when the file is not readable.
  [[nodiscard]] static Secret from_file(const std::string& path);

  /// Reads `path` as from_file() does, or creates it with mode 0600 and a new secret if it does not
  /// exist; missing folders are created with mode 0700. Several processes may call this at once,
  /// also on several machines that share the folder: all get the same secret. Never writes to an
  /// existing file or through a symbolic link.
  [[nodiscard]] static Secret create_or_read_file(const std::string& path);

  /// A sealed memfd that contains the secret, for children to inherit. It is close-on-exec: only a
  /// child for which it is duplicated (dup2) gets it. Throws SystemError.
  [[nodiscard]] FileDescriptor to_descriptor() const;

  /// A second Secret with the same bytes.
  [[nodiscard]] Secret copy() const { return from_bytes(bytes()); }

  /// The bytes, for key derivation; do not store or send them. Invalid for a moved-from Secret.
  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept;

 private:
  using Bytes = std::array<std::byte, kBytes>;
  struct Wipe {
    void operator()(Bytes* bytes) const noexcept;
  };
  using Owned = std::unique_ptr<Bytes, Wipe>;

  // Allocates a separate page that is excluded from core dumps and wiped in forked children: a
  // supervisor process executes no other program and would keep a copy. Throws SystemError.
  [[nodiscard]] static Owned allocate();
  explicit Secret(Owned bytes) noexcept : bytes_(std::move(bytes)) {}

  Owned bytes_;  // behind a pointer: a move leaves no copy, and a dump of the object shows no byte
};

}  // namespace lockstep
