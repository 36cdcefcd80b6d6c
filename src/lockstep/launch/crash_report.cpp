#include "lockstep/launch/crash_report.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/launch/exit_code.h"
#include "lockstep/launch/symbolizer_internal.h"

namespace lockstep {
namespace {

// "<start>-<end> r-xp <offset> <device> <inode> <path>"
std::optional<CrashRecord::Mapping> parse_mapping(const std::string& text) {
  std::istringstream fields(text);
  CrashRecord::Mapping mapping;
  char dash = 0;
  std::string permissions;
  std::string device;
  std::string inode;
  fields >> std::hex >> mapping.begin >> dash >> mapping.end >> permissions >> mapping.offset >>
      device >> inode;
  if (!fields || dash != '-') return std::nullopt;
  std::getline(fields >> std::ws, mapping.path);
  return mapping;
}

void parse_line(CrashRecord& record, const std::string& line) {
  std::istringstream fields(line);
  std::string word;
  fields >> word;
  if (word == "signal") fields >> record.signal;
  if (word == "thread") std::getline(fields >> record.thread >> std::ws, record.thread_name);
  std::uintptr_t hex = 0;
  if (word == "address" && fields >> std::hex >> hex) record.address = hex;
  if (word == "frame" && fields >> std::hex >> hex) record.frames.push_back(hex);
  if (word == "mapping") {
    if (auto mapping = parse_mapping(line.substr(word.size()))) {
      record.mappings.push_back(std::move(*mapping));
    }
  }
  record.nested |= word == "nested";
  record.whole |= word == "end";
}

// The virtual address that `file` has at `offset`, from its program headers.
std::optional<std::uintptr_t> virtual_address_at(const std::string& file, std::uintptr_t offset) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  std::ifstream elf(file, std::ios::binary);
  Elf64_Ehdr head{};
  if (!elf.read(reinterpret_cast<char*>(&head), sizeof(head))) return std::nullopt;
  if (!std::equal(head.e_ident, head.e_ident + SELFMAG, ELFMAG)) return std::nullopt;
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    elf.seekg(static_cast<std::streamoff>(head.e_phoff + i * sizeof(part)));
    if (!elf.read(reinterpret_cast<char*>(&part), sizeof(part))) return std::nullopt;
    if (part.p_type == PT_LOAD && offset >= part.p_offset &&
        offset < part.p_offset + part.p_filesz) {
      return offset - part.p_offset + part.p_vaddr;
    }
  }
  return std::nullopt;
}

CodeLocation location_of(const CrashRecord& record, std::uintptr_t address) {
  for (const auto& mapping : record.mappings) {
    if (address < mapping.begin || address >= mapping.end) continue;
    const auto offset = address - mapping.begin + mapping.offset;
    return {mapping.path, virtual_address_at(mapping.path, offset).value_or(offset)};
  }
  return {"", address};
}

std::string file_name(const std::string& path) {
  const auto slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::string raw(const CodeLocation& location) {
  if (location.module.empty()) return fmt::format("0x{:x}", location.address);
  return fmt::format("{}+0x{:x}", file_name(location.module), location.address);
}

std::string headline(const CrashRecord& record) {
  auto line = fmt::format("{} in thread {} ({})", signal_name(record.signal), record.thread,
                          record.thread_name);
  if (record.address) line += fmt::format(" at address 0x{:x}", *record.address);
  if (record.nested) line += "; the stack is damaged, frames are missing";
  if (!record.whole) line += "; the record is incomplete";
  return line;
}

}  // namespace

std::optional<CrashRecord> parse_crash_record(std::string_view text) {
  std::istringstream lines{std::string(text)};
  std::optional<CrashRecord> record;
  std::string line;
  while (std::getline(lines, line) && !(record && record->whole)) {
    if (!record && line == "lockstep-crash 1") record.emplace();
    if (record) parse_line(*record, line);
  }
  return record;
}

std::vector<CodeLocation> locations_of(const CrashRecord& record) {
  std::vector<CodeLocation> locations;
  for (std::size_t i = 0; i < record.frames.size(); ++i) {
    const auto frame = record.frames[i];
    locations.push_back(location_of(record, i == 0 || frame == 0 ? frame : frame - 1));
  }
  return locations;
}

std::vector<std::string> without_throwing(std::vector<std::string> lines) {
  constexpr std::array kThrows{"__cxa_throw", "__cxa_rethrow", "std::rethrow_exception",
                               "std::terminate"};
  const auto throws = [&](const std::string& line) {
    return std::any_of(kThrows.begin(), kThrows.end(),
                       [&](const char* name) { return line.find(name) != line.npos; });
  };
  const auto last = std::find_if(lines.rbegin(), lines.rend(), throws);
  if (last != lines.rend()) lines.erase(lines.begin() + 1, last.base());
  return lines;
}

std::vector<std::string> explain_crash(const CrashRecord& record, Deadline deadline) {
  std::vector<std::string> lines{headline(record)};
  const auto locations = locations_of(record);
  const auto names = name_locations(locations, deadline);
  std::size_t number = 0;
  for (std::size_t i = 0; i < locations.size(); ++i) {
    if (names[i].empty()) lines.push_back(fmt::format("#{} {}", number++, raw(locations[i])));
    for (const auto& [function, source] : names[i]) {
      lines.push_back(fmt::format("#{} {} at {}", number++, function,
                                  source.empty() ? raw(locations[i]) : source));
    }
  }
  return without_throwing(std::move(lines));
}

}  // namespace lockstep
