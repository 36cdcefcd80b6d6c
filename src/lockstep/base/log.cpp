#include "lockstep/base/log.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

std::string_view prefix(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug: ";
    case LogLevel::info:
      return "";
    case LogLevel::warning:
      return "warning: ";
    case LogLevel::error:
      return "error: ";
  }
  return "";
}

std::string one_line(const std::optional<int>& rank, LogLevel level, std::string_view message) {
  std::string line = rank ? fmt::format("rank {} | ", *rank) : "lockstep | ";
  line += prefix(level);
  for (const char letter : message) {
    if (letter == '\n') {
      line += "\\n";
    } else {
      line += letter;
    }
  }
  line += '\n';
  return line;
}

}  // namespace

void Log::write(LogLevel level, std::string_view message) const {
  if (!shows(level)) return;
  try {
    const auto line = one_line(options_.rank, level, message);
    write_all(options_.descriptor, std::as_bytes(std::span(line)), "the log");
  } catch (const SystemError&) {  // write errors are ignored: see the header
  }
}

}  // namespace lockstep
