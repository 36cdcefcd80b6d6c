#include "lockstep/launch/crash_report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "lockstep/base/crash_handler.h"
#include "lockstep/launch/symbolizer_internal.h"
#include "lockstep/testing/crashes.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

volatile std::uintptr_t bad_address = 0x18;
volatile int sink = 0;

LOCKSTEP_CRASHES void crash_on_purpose() {
  *reinterpret_cast<volatile int*>(bad_address) = 1;  // NOLINT(performance-no-int-to-ptr)
  sink = 1;
}

LOCKSTEP_CRASHES void caller_of_the_crash() {
  crash_on_purpose();
  sink = 2;
}

// The output of a process that crashed in crash_on_purpose, with its record.
std::string output_of_a_crash() {
  const auto crash = [](testing::Rank& /*self*/) {
    const CrashHandler handler(STDERR_FILENO);
    caller_of_the_crash();
  };
  const auto outcomes =
      testing::run_ranks_as_processes(1, crash, {.expect = testing::Expect::anything});
  EXPECT_EQ(outcomes[0].signal, SIGSEGV) << outcomes[0].output;
  return outcomes[0].output;
}

TEST(CrashReport, NamesTheFunctionThatCrashedItsCallerAndTheirLines) {
  const auto record = parse_crash_record(output_of_a_crash());
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->whole);
  EXPECT_EQ(record->signal, SIGSEGV);
  EXPECT_EQ(record->address, 0x18u);
  const auto lines = explain_crash(*record, Deadline::after(60s));
  ASSERT_GE(lines.size(), 3u);
  EXPECT_TRUE(lines[0].starts_with("SIGSEGV in thread ")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("#0 lockstep::(anonymous namespace)::crash_on_purpose() at "))
      << lines[1];
  EXPECT_NE(lines[1].find("crash_report_test.cpp:"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("#1 lockstep::(anonymous namespace)::caller_of_the_crash() at "),
            std::string::npos)
      << lines[2];
}

TEST(CrashReport, WithoutTimeForToolsModulesAndOffsetsAreShown) {
  const auto record = parse_crash_record(output_of_a_crash());
  ASSERT_TRUE(record);
  const auto lines = explain_crash(*record, Deadline::after(0s));
  ASSERT_GE(lines.size(), 3u);
  EXPECT_NE(lines[1].find("crash_report_test+0x"), std::string::npos) << lines[1];
}

TEST(CrashReport, TextWithoutARecordGivesNone) {
  EXPECT_EQ(parse_crash_record(""), std::nullopt);
  EXPECT_EQ(parse_crash_record("hello\nsignal 11 SIGSEGV\n"), std::nullopt);
}

TEST(CrashReport, AnIncompleteRecordIsUsedAndReportedAsIncomplete) {
  const auto record = parse_crash_record(
      "noise\nlockstep-crash 1\nsignal 6 SIGABRT\ncode -6\nsender 7\npid 7\nthread 7 a b\n"
      "frame 0x10\nnested 11 SIGSEGV\nmapping zz\nmapping 10-20 r-xp 5 00:00 0 /nowhere/lib.so\n");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->thread_name, "a b");
  ASSERT_EQ(record->mappings.size(), 1u);
  const auto lines = explain_crash(*record, Deadline::after(10s));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "SIGABRT in thread 7 (a b); the stack is damaged, frames are missing; the record is "
            "incomplete");
  EXPECT_EQ(lines[1], "#0 lib.so+0x5");
}

TEST(Symbolizer, ReadsInlinedFunctionsAndUnknownOnes) {
  const auto locations = parse_addr2line(
      "0x1\ninner\n/a/b.cpp:3 (discriminator 2)\nouter\n/a/b.cpp:9\n0x2\n??\n??:0\n0x3\nf\n??:?\n",
      3);
  ASSERT_EQ(locations.size(), 3u);
  ASSERT_EQ(locations[0].size(), 2u);
  EXPECT_EQ(locations[0][0].function, "inner");
  EXPECT_EQ(locations[0][0].source, "/a/b.cpp:3");
  EXPECT_EQ(locations[0][1].function, "outer");
  EXPECT_TRUE(locations[1].empty());
  ASSERT_EQ(locations[2].size(), 1u);
  EXPECT_EQ(locations[2][0].source, "");
}

TEST(Symbolizer, AToolThatHangsFailsOrIsMissingGivesNothing) {
  EXPECT_EQ(try_run_tool({"echo", "hello"}, Deadline::after(10s)), "hello\n");
  EXPECT_EQ(try_run_tool({"false"}, Deadline::after(10s)), std::nullopt);
  EXPECT_EQ(try_run_tool({"lockstep-no-such-tool"}, Deadline::after(10s)), std::nullopt);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(try_run_tool({"sleep", "100"}, Deadline::after(50ms)), std::nullopt);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(Symbolizer, ASignalDoesNotEndTheWaitForATool) {
  static volatile std::sig_atomic_t arrived = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) { arrived = 1; };
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const auto script = fmt::format("sleep 0.1; kill -USR1 {}; sleep 0.1; echo late", ::getpid());
  EXPECT_EQ(try_run_tool({"sh", "-c", script}, Deadline::after(60s)), "late\n");
  EXPECT_EQ(arrived, 1);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(CrashReport, TheStackOfAnUncaughtExceptionBeginsWhereItWasThrown) {
  EXPECT_EQ(without_throwing({"SIGABRT in thread 1 (main)", "#0 raise at libc.so.6+0x1", "#1 abort",
                              "#2 std::terminate() at eh.cc:9", "#3 __cxa_throw at eh.cc:1",
                              "#4 load_shard at data.cpp:7", "#5 main at main.cpp:3"}),
            (std::vector<std::string>{"SIGABRT in thread 1 (main)", "#4 load_shard at data.cpp:7",
                                      "#5 main at main.cpp:3"}));
  const std::vector<std::string> plain{"SIGSEGV in thread 1 (main)", "#0 main at main.cpp:3"};
  EXPECT_EQ(without_throwing(plain), plain);
}

}  // namespace
}  // namespace lockstep
