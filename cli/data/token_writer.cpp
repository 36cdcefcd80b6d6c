#include "cli/data/token_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

TokenWriter::TokenWriter(std::string path, TokenWriterOptions options)
    : path_(std::move(path)),
      unfinished_(fmt::format("{}.unfinished-{}", path_, ::getpid())),
      options_(options),
      file_(FileDescriptor::open(unfinished_, O_WRONLY | O_CREAT | O_TRUNC)) {
  if (options_.llmc_header) write_header();
}

TokenWriter::~TokenWriter() {
  if (file_) ::unlink(unfinished_.c_str());
}

void TokenWriter::write_header() {
  std::array<std::int32_t, 256> words{};
  words[0] = options_.token_bytes == 2 ? 20240520 : 20240801;
  words[1] = options_.token_bytes == 2 ? 1 : 7;
  words[2] = static_cast<std::int32_t>(num_tokens_);
  write_all(file_.number(), std::as_bytes(std::span(words)), unfinished_);
}

void TokenWriter::write(std::span<const std::uint32_t> tokens) {
  num_tokens_ += tokens.size();
  if (options_.token_bytes == 4) {
    return write_all(file_.number(), std::as_bytes(tokens), unfinished_);
  }
  std::vector<std::uint16_t> narrow(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    LOCKSTEP_ASSERT(tokens[i] <= 0xffff, "a token of two bytes is at most 65535");
    narrow[i] = static_cast<std::uint16_t>(tokens[i]);
  }
  write_all(file_.number(), std::as_bytes(std::span(narrow)), unfinished_);
}

void TokenWriter::finish() {
  if (options_.llmc_header) {
    if (num_tokens_ > std::numeric_limits<std::int32_t>::max()) {
      throw UsageError(fmt::format(
          "llm.c's header has at most 2147483647 tokens, but there are {}: write several files, or "
          "use --layout raw",
          num_tokens_));
    }
    if (::lseek(file_.number(), 0, SEEK_SET) != 0) {
      throw SystemError(fmt::format("cannot seek in {}", unfinished_), errno);
    }
    write_header();
  }
  if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) {
    throw SystemError(fmt::format("cannot rename {} to {}", unfinished_, path_), errno);
  }
  file_.reset();
}

}  // namespace lockstep::cli
