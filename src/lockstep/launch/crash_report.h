// Reads a crash record (base/crash_handler.h) and describes the crash and its stack.
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
  std::optional<std::uintptr_t> address = {};  // that the instruction accessed
  int thread = 0;
  std::string thread_name = {};
  std::vector<std::uintptr_t> frames = {};  // innermost first
  std::vector<Mapping> mappings = {};
  bool nested = false;  // unwinding crashed: frames are missing
  bool whole = false;   // false: the record is incomplete
};

/// The first record in `text`; nullopt when there is none.
[[nodiscard]] std::optional<CrashRecord> parse_crash_record(std::string_view text);

/// A location in the code, as debuggers name it.
struct CodeLocation {
  std::string module = {};     // path of the program or library; empty: in none
  std::uintptr_t address = 0;  // virtual address in the module, or the raw address without one
};

/// The location of each frame; for return addresses the byte before, which belongs to the call.
[[nodiscard]] std::vector<CodeLocation> locations_of(const CrashRecord& record);

/// The lines of a stack without the frames above the throw of an uncaught exception, which belong
/// to the C++ runtime. The first line, the headline, stays.
[[nodiscard]] std::vector<std::string> without_throwing(std::vector<std::string> lines);

/// A headline with the signal, then the stack of `record` as lines such as
/// "#0 train_step at src/main.cpp:12", including inlined functions. The names come from addr2line
/// or eu-addr2line; frames without a name by `deadline` are shown as "#2 libm.so.6+0x1234".
[[nodiscard]] std::vector<std::string> explain_crash(const CrashRecord& record, Deadline deadline);

}  // namespace lockstep
