#include "lockstep/base/crash_handler.h"

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/testing/crashes.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

using testing::Expect;
using testing::Rank;
using testing::RankOutcome;
using testing::run_ranks_as_processes;

volatile std::uintptr_t bad_address = 0x18;
volatile int zero = 0;
volatile int sink = 0;

LOCKSTEP_CRASHES void write_to_a_bad_address() {
  *reinterpret_cast<volatile int*>(bad_address) = 1;  // NOLINT(performance-no-int-to-ptr)
  sink = 1;
}

LOCKSTEP_CRASHES void call_a_null_function() {
  const auto nowhere = static_cast<std::uintptr_t>(zero);
  reinterpret_cast<void (*)()>(nowhere)();  // NOLINT(performance-no-int-to-ptr)
  sink = 2;
}

LOCKSTEP_CRASHES void read_past_the_end_of_a_file() {
  const FileDescriptor empty(::memfd_create("empty", MFD_CLOEXEC));
  const void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, empty.number(), 0);
  sink = *static_cast<const volatile int*>(page);
}

LOCKSTEP_CRASHES int overflow_the_stack(int depth) {
  // 4 KiB per call use up 8 MiB before the thread sanitizer's limit of 64 Ki calls.
  std::array<volatile char, 4096> room{};
  room[static_cast<std::size_t>(depth) % room.size()] = 1;
  return depth < 0 ? room[0] : overflow_the_stack(depth + 1) + room[1];
}

LOCKSTEP_CRASHES void divide_by_zero() {
#if defined(__x86_64__)
  sink = 7 / zero;  // not 1 / zero, which compilers turn into a comparison
#else
  ::raise(SIGFPE);  // this machine's division does not trap
#endif
  sink = 3;
}

LOCKSTEP_CRASHES void execute_a_trap() {
  __builtin_trap();
  sink = 4;
}

LOCKSTEP_CRASHES void lose_the_stack() {
  // The unwinder follows these two registers, and crashes.
#if defined(__x86_64__)
  asm volatile("mov $16, %rbp\n mov $16, %rsp\n ud2");
#else
  asm volatile("mov x29, #16\n mov sp, x29\n udf #0");
#endif
  sink = 5;
}

struct Record {
  std::string text;
  int signal = 0;
  std::string signal_name;
  int code = 0;
  std::optional<std::uintptr_t> address;
  std::optional<int> sender;
  int pid = 0;
  int thread = 0;
  std::string thread_name;
  std::vector<std::uintptr_t> frames;
  std::vector<std::string> mappings;
  bool nested = false;
  bool ended = false;
};

void parse_line(Record& record, const std::string& line) {
  std::istringstream fields(line);
  std::string word;
  fields >> word >> std::hex;
  std::uintptr_t hex = 0;
  if (word == "address" && fields >> hex) record.address = hex;
  if (word == "frame" && fields >> hex) record.frames.push_back(hex);
  fields >> std::dec;
  int number = 0;
  if (word == "signal") fields >> record.signal >> record.signal_name;
  if (word == "code") fields >> record.code;
  if (word == "sender" && fields >> number) record.sender = number;
  if (word == "pid") fields >> record.pid;
  if (word == "thread") std::getline(fields >> record.thread >> std::ws, record.thread_name);
  if (word == "mapping") record.mappings.push_back(line.substr(8));
  record.nested |= word == "nested";
  record.ended |= word == "end";
}

Record parse(const std::string& output) {
  Record record;
  record.text = output;
  std::istringstream lines(output);
  std::string line;
  bool inside = false;
  while (std::getline(lines, line) && !record.ended) {
    inside |= line == "lockstep-crash 1";
    if (inside) parse_line(record, line);
  }
  return record;
}

// A location in a file, as the recipe in crash_handler.h finds it.
struct CodeLocation {
  std::string file;
  std::uintptr_t virtual_address = 0;
};

std::uintptr_t virtual_address_at(const std::string& file, std::uintptr_t offset) {
  std::ifstream elf(file, std::ios::binary);
  Elf64_Ehdr head{};
  elf.read(reinterpret_cast<char*>(&head), sizeof(head));
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    elf.seekg(static_cast<std::streamoff>(head.e_phoff + std::size_t{i} * head.e_phentsize));
    elf.read(reinterpret_cast<char*>(&part), sizeof(part));
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    if (offset >= part.p_offset && offset < part.p_offset + part.p_filesz) {
      return offset - part.p_offset + part.p_vaddr;
    }
  }
  return 0;
}

std::optional<CodeLocation> location_of(const Record& record, std::uintptr_t address) {
  for (const auto& mapping : record.mappings) {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
    std::uintptr_t offset = 0;
    std::string skipped;
    std::string file;
    char dash = 0;
    std::istringstream fields(mapping);
    fields >> std::hex >> start >> dash >> end >> skipped >> offset >> skipped >> skipped >> file;
    if (address < start || address >= end) continue;
    return CodeLocation{file, virtual_address_at(file, address - start + offset)};
  }
  return std::nullopt;
}

// The names of the functions at the record's first frames, one per line, by addr2line.
std::string first_functions(const Record& record) {
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(record.frames.size(), 6); ++i) {
    const auto location = location_of(record, record.frames[i] - (i > 0 ? 1 : 0));
    if (!location || !location->file.starts_with("/")) continue;
    std::ostringstream command;
    command << "addr2line -i -f -C -e '" << location->file << "' " << std::hex
            << location->virtual_address;
    FILE* pipe = ::popen(command.str().c_str(), "r");  // NOLINT(bugprone-command-processor)
    std::array<char, 1024> line{};
    while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr)
      names += line.data();
    ::pclose(pipe);
  }
  return names;
}

bool has_addr2line() {
  return std::system("addr2line --version > /dev/null 2>&1") == 0;  // NOLINT
}

// Calls `crash` under a CrashHandler in a separate process, and returns how that process ended.
RankOutcome outcome_of(const std::function<void()>& crash) {
  const auto body = [&](Rank& /*self*/) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    const CrashHandler handler(STDOUT_FILENO);
    crash();
  };
  return run_ranks_as_processes(1, body, {.expect = Expect::anything}).front();
}

// Checks what all crashes have in common.
Record expect_crash(const RankOutcome& outcome, int signal, const std::string& name) {
  EXPECT_EQ(outcome.signal, signal) << "exit code " << outcome.exit_code.value_or(-1) << "\n"
                                    << outcome.output;
  auto record = parse(outcome.output);
  EXPECT_TRUE(record.ended) << record.text;
  EXPECT_FALSE(record.nested) << record.text;
  EXPECT_EQ(record.signal, signal);
  EXPECT_EQ(record.signal_name, name);
  EXPECT_GT(record.pid, 0);
  EXPECT_FALSE(record.frames.empty()) << record.text;
  return record;
}

void expect_function(const Record& record, const std::string& function) {
  ASSERT_GE(record.frames.size(), 3u) << record.text;
  EXPECT_TRUE(location_of(record, record.frames[1]).has_value()) << record.text;
  if (!has_addr2line()) return;  // without it, only the mappings of the frames are checked
  const auto names = first_functions(record);
  EXPECT_NE(names.find(function), std::string::npos) << names << record.text;
}

TEST(CrashHandler, ABadWriteIsRecordedWithItsAddressAndFunction) {
  const auto record = expect_crash(outcome_of(write_to_a_bad_address), SIGSEGV, "SIGSEGV");
  EXPECT_EQ(record.code, SEGV_MAPERR);
  EXPECT_EQ(record.address, 0x18u);
  EXPECT_EQ(record.thread, record.pid);
  EXPECT_TRUE(location_of(record, record.frames[0]).has_value());
  expect_function(record, "write_to_a_bad_address");
}

TEST(CrashHandler, ACallThroughANullPointerShowsTheCaller) {
  const auto record = expect_crash(outcome_of(call_a_null_function), SIGSEGV, "SIGSEGV");
  EXPECT_EQ(record.address, 0u);
  EXPECT_EQ(record.frames[0], 0u);
  expect_function(record, "call_a_null_function");
}

TEST(CrashHandler, AStackOverflowIsRecorded) {
  const auto outcome = outcome_of([] { sink = overflow_the_stack(0); });
  expect_function(expect_crash(outcome, SIGSEGV, "SIGSEGV"), "overflow_the_stack");
}

TEST(CrashHandler, AStackOverflowOfAThreadIsRecordedIfItHasAnAlternateStack) {
  const auto outcome = outcome_of([] {
    std::jthread([] {
      const AlternateSignalStack stack;
      sink = overflow_the_stack(0);
    }).join();
  });
  const auto record = expect_crash(outcome, SIGSEGV, "SIGSEGV");
  EXPECT_NE(record.thread, record.pid);
  expect_function(record, "overflow_the_stack");
}

TEST(CrashHandler, ABusErrorIsRecorded) {
  const auto record = expect_crash(outcome_of(read_past_the_end_of_a_file), SIGBUS, "SIGBUS");
  EXPECT_EQ(record.code, BUS_ADRERR);
  expect_function(record, "read_past_the_end_of_a_file");
}

TEST(CrashHandler, ADivisionByZeroIsRecorded) {
  const auto record = expect_crash(outcome_of(divide_by_zero), SIGFPE, "SIGFPE");
  expect_function(record, "divide_by_zero");
}

TEST(CrashHandler, ATrapInstructionIsRecorded) {
#if defined(__x86_64__)
  const auto record = expect_crash(outcome_of(execute_a_trap), SIGILL, "SIGILL");
#else
  const auto record = expect_crash(outcome_of(execute_a_trap), SIGTRAP, "SIGTRAP");
#endif
  EXPECT_GT(record.code, 0);
  expect_function(record, "execute_a_trap");
}

TEST(CrashHandler, AnAbortIsRecordedWithItsSender) {
  const auto record = expect_crash(outcome_of([] { std::abort(); }), SIGABRT, "SIGABRT");
  EXPECT_EQ(record.sender, record.pid);
  EXPECT_EQ(record.address, std::nullopt);
}

TEST(CrashHandler, EverySignalIsRecordedAndEndsTheProcessByItself) {
  // All children run before the first comparison, so that a failed one does not skip later ones.
  std::vector<RankOutcome> outcomes;
  outcomes.reserve(CrashHandler::kSignals.size());
  for (const int signal : CrashHandler::kSignals) {
    outcomes.push_back(outcome_of([signal] { ::raise(signal); }));
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const int signal = CrashHandler::kSignals[i];
    (void)expect_crash(outcomes[i], signal, std::string("SIG") + ::sigabbrev_np(signal));
  }
}

TEST(CrashHandler, ACrashOfAnotherThreadIsRecordedWithItsIdAndName) {
  const auto outcome = outcome_of([] {
    std::jthread([] {
      ::pthread_setname_np(::pthread_self(), "data loader\n3");
      ::raise(SIGSEGV);
    }).join();
  });
  const auto record = expect_crash(outcome, SIGSEGV, "SIGSEGV");
  EXPECT_NE(record.thread, record.pid);
  EXPECT_EQ(record.thread_name, "data loader?3");
}

TEST(CrashHandler, OfManyThreadsThatCrashOnlyTheFirstWrites) {
  const auto outcome = outcome_of([] {
    std::vector<std::jthread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) threads.emplace_back([] { std::abort(); });
  });
  const auto record = expect_crash(outcome, SIGABRT, "SIGABRT");
  EXPECT_EQ(record.text.find("lockstep-crash"), record.text.rfind("lockstep-crash")) << record.text;
}

TEST(CrashHandler, ACrashOfTheUnwinderCostsOnlyTheFrames) {
  const auto outcome = outcome_of(lose_the_stack);
  EXPECT_EQ(outcome.signal, SIGILL) << outcome.output;
  const auto record = parse(outcome.output);
  EXPECT_EQ(record.signal, SIGILL);
  EXPECT_TRUE(record.nested && record.ended) << record.text;
  ASSERT_EQ(record.frames.size(), 1u) << record.text;
  EXPECT_TRUE(location_of(record, record.frames[0]).has_value()) << record.text;
}

TEST(CrashHandler, ACrashWithTheReportStuckStillEndsByItsSignal) {
  const auto outcome = run_ranks_as_processes(
      1,
      [](Rank& /*self*/) {
        std::array<int, 2> ends{};
        ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
        ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
        const std::array<char, 4096> full{};
        ASSERT_EQ(::write(ends[1], full.data(), full.size()), 4096);
        const CrashHandler handler(ends[1], {.limit = std::chrono::seconds(1)});
        std::abort();
      },
      {.expect = Expect::anything});
  EXPECT_EQ(outcome[0].signal, SIGABRT) << outcome[0].output;
}

TEST(CrashHandler, ThereIsOneAtATime) {
  const FileDescriptor target(::memfd_create("records", MFD_CLOEXEC));
  {
    const CrashHandler first(target.number());
    EXPECT_THROW(CrashHandler(target.number()), UsageError);
  }
  const CrashHandler next(target.number());
}

TEST(CrashHandler, RefusesADescriptorThatIsNotOpenAndALimitOfZero) {
  EXPECT_THROW(CrashHandler(-1), UsageError);
  EXPECT_THROW(CrashHandler(STDERR_FILENO, {.limit = std::chrono::seconds(0)}), UsageError);
}

TEST(CrashHandler, RestoresThePreviousHandlersAndStack) {
  struct sigaction before {};
  stack_t stack_before{};
  ::sigaction(SIGSEGV, nullptr, &before);
  ::sigaltstack(nullptr, &stack_before);
  {
    const CrashHandler handler(STDERR_FILENO);
    struct sigaction during {};
    ::sigaction(SIGSEGV, nullptr, &during);
    EXPECT_NE(during.sa_sigaction, before.sa_sigaction);
  }
  struct sigaction after {};
  stack_t stack_after{};
  ::sigaction(SIGSEGV, nullptr, &after);
  ::sigaltstack(nullptr, &stack_after);
  EXPECT_EQ(after.sa_sigaction, before.sa_sigaction);
  EXPECT_EQ(stack_after.ss_sp, stack_before.ss_sp);
  EXPECT_EQ(stack_after.ss_flags, stack_before.ss_flags);
}

}  // namespace
}  // namespace lockstep
