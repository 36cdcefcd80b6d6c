#include "lockstep/base/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {

void write_whole(const std::string& path, std::string_view text) {
  const auto draft = path + ".tmp";
  {
    const auto file = FileDescriptor::open(draft, O_WRONLY | O_CREAT | O_TRUNC);
    write_all(file.number(), std::as_bytes(std::span(text)), draft);
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    throw SystemError(fmt::format("cannot rename {} to {}", draft, path), errno);
  }
}

}  // namespace lockstep
