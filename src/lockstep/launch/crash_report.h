// A crash record (base/crash_handler.h) read back: what happened, and where in the code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/deadline.h"

namespace lockstep {

struct CrashRecord {
  struct Mapping {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::uintptr_t offset = 0;  // of `begin` in the file
    std::string path = {};
  };

  int signal = 0;
  std::optional<std::uintptr_t> address = {};  // that the instruction failed on
  int thread = 0;
  std::string thread_name = {};
  std::vector<std::uintptr_t> frames = {};  // innermost first
  std::vector<Mapping> mappings = {};
  bool nested = false;  // unwinding crashed: frames are missing
  bool whole = false;   // false: it was cut short
};

/// The first record in `text`; nothing when there is none.
[[nodiscard]] std::optional<CrashRecord> parse_crash_record(std::string_view text);

/// A location in a file of code, as debuggers name it.
struct CodeLocation {
  std::string module = {};     // path of the program or library; empty: not in any
  std::uintptr_t address = 0;  // virtual address in it, or the plain one without a module
};

/// Where each frame is; the byte before for return addresses, so that it lies in the call.
[[nodiscard]] std::vector<CodeLocation> locations_of(const CrashRecord& record);

/// The lines of a stack without the frames above the throw of an uncaught exception: they tell how
/// the C++ runtime ends a process. The first line, which says what happened, stays.
[[nodiscard]] std::vector<std::string> without_throwing(std::vector<std::string> lines);

/// The stack of `record` as lines such as "#0 train_step at src/main.cpp:12", inlined functions
/// included, after a line that says what happened. Asks addr2line or eu-addr2line for the names;
/// what they do not tell by `deadline` is shown as "#2 libm.so.6+0x1234".
[[nodiscard]] std::vector<std::string> explain_crash(const CrashRecord& record, Deadline deadline);

}  // namespace lockstep
