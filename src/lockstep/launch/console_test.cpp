#include "lockstep/launch/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""s;
using std::chrono_literals::operator""ms;

constexpr auto kOut = OutputStream::standard_output;
constexpr auto kErr = OutputStream::standard_error;

class Paper {
 public:
  [[nodiscard]] int number() const { return file_.number(); }
  [[nodiscard]] std::string text() const {
    std::string result(1 << 20, '\0');
    const auto count = ::pread(file_.number(), result.data(), result.size(), 0);
    result.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return result;
  }

 private:
  FileDescriptor file_{::memfd_create("paper", MFD_CLOEXEC)};
};

TEST(Console, LinesHaveTheirRankAndAreWrittenToTheirStream) {
  const Paper out;
  const Paper err;
  Console console({.size = 8, .local_size = 8, .output = out.number(), .error = err.number()});
  console.show(3, kOut, {"loss 0.5", "loss 0.4"});
  console.show(4, kErr, {"careful"});
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(out.text(), "3 | loss 0.5\n3 | loss 0.4\n");
  EXPECT_EQ(err.text(), "4 | careful\n");
}

TEST(Console, EqualLinesOfManyRanksAreFolded) {
  const Paper out;
  Console console({.size = 8, .local_size = 8, .output = out.number()});
  for (int rank = 0; rank < 8; ++rank) {
    console.show(rank, kOut, {"hello", "I am " + std::to_string(rank)});
  }
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(out.text().substr(0, 36), "ranks 0-7 (8x) | hello\n0 | I am 0\n1 ");
}

TEST(Console, AFoldedLineAppearsWithoutAnyFurtherEvent) {
  const Paper out;
  Console console({.size = 2, .local_size = 2, .output = out.number(), .fold_window = 20ms});
  console.show(0, kOut, {"alone"});
  const auto deadline = Deadline::after(5s);
  while (out.text().empty() && !deadline.expired()) std::this_thread::yield();
  EXPECT_EQ(out.text(), "0 | alone\n");
}

TEST(Console, OnlyTheRequestedRanksAreShown) {
  const Paper out;
  Console console(
      {.size = 4, .local_size = 4, .show_ranks = std::vector{1, 3}, .output = out.number()});
  for (int rank = 0; rank < 4; ++rank) console.show(rank, kOut, {"hello"});
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(out.text(), "ranks 1,3 (2x) | hello\n");
}

TEST(Console, WithoutPrefixesLinesAreUnchanged) {
  const Paper out;
  Console console({.size = 2, .local_size = 2, .prefix = false, .output = out.number()});
  console.show(0, kOut, {"a"});
  console.show(1, kOut, {"a"});
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(out.text(), "a\na\n");
}

TEST(Console, BinaryBytesDoNotReachTheTerminal) {
  const Paper out;
  Console console({.output = out.number()});
  console.show(0, kOut, {std::string("\x1b[2J\0\xff", 6)});
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(out.text(), "0 | \\x1b[2J\\x00\\xff\n");
}

// A pipe without a reader is the slowest terminal.
struct StuckPipe {
  StuckPipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
  FileDescriptor read_end;
  FileDescriptor write_end;
};

TEST(Console, ABlockedTerminalBlocksNoRankAndTheConsoleEndsInTime) {
  const StuckPipe pipe;
  const auto start = std::chrono::steady_clock::now();
  Console console({.output = pipe.write_end.number(), .queue_bytes = 1u << 20});
  for (int i = 0; i < 1000; ++i) {
    console.show(0, kOut, std::vector<std::string>(100, std::string(80, 'x')));
  }
  EXPECT_GT(console.num_dropped(), 50'000u);
  EXPECT_FALSE(console.finish(Deadline::after(200ms)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(Console, DroppedLinesAreCountedWhereTheyAreMissing) {
  StuckPipe pipe;
  Console console({.output = pipe.write_end.number(),
                   .error = pipe.write_end.number(),
                   .queue_bytes = 16u << 10});
  constexpr std::uint64_t num_lines = 20'000;
  for (std::uint64_t i = 0; i < num_lines; ++i) console.show(0, kOut, {std::string(100, 'x')});
  ASSERT_GT(console.num_dropped(), 0u);
  std::string text;
  std::jthread reader([&] {
    std::array<char, 4096> chunk{};
    ssize_t count = 0;
    while ((count = ::read(pipe.read_end.number(), chunk.data(), chunk.size())) > 0) {
      text.append(chunk.data(), static_cast<std::size_t>(count));
    }
  });
  EXPECT_TRUE(console.finish(Deadline::after(20s)));
  pipe.write_end.reset();  // the console has ended: the reader reaches the end
  reader.join();
  std::istringstream lines(text);
  std::string line;
  std::uint64_t shown = 0;
  std::uint64_t dropped = 0;
  while (std::getline(lines, line)) {
    if (line == "0 | " + std::string(100, 'x')) {
      ++shown;
    } else {
      ASSERT_TRUE(line.starts_with("lockstep | ")) << "torn: " << line;
      dropped += std::stoull(line.substr(11));
    }
  }
  EXPECT_EQ(dropped, console.num_dropped());
  EXPECT_EQ(shown + dropped, num_lines);
}

TEST(Console, AReaderThatClosesEndsNothing) {
  StuckPipe pipe;
  Console console({.output = pipe.write_end.number()});
  pipe.read_end.reset();
  console.show(0, kOut, {"without a reader"});
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
}

TEST(Console, LinesOfTheLauncherKeepTheirPosition) {
  const Paper paper;
  Console console({.size = 2, .local_size = 2, .output = paper.number(), .error = paper.number()});
  console.show(0, kOut, {"before"});
  console.notice("rank 1 is stopped");
  console.show(1, kOut, {"after"});
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(paper.text(), "0 | before\nlockstep | rank 1 is stopped\n1 | after\n");
}

TEST(Console, ALiveLineStaysLastAndIsRemovedAtTheEnd) {
  const Paper paper;
  Console console(
      {.prefix = false, .live = true, .output = paper.number(), .error = paper.number()});
  const auto seen = [&](const std::string& text) {
    const auto deadline = Deadline::after(5s);
    while (paper.text() != text && !deadline.expired()) std::this_thread::yield();
    EXPECT_EQ(paper.text(), text);
  };
  console.show_live(0, "step 1");
  seen("step 1");
  console.show(0, kOut, {"a line"});
  seen(
      "step 1\r\x1b[K"
      "a line\nstep 1");
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(paper.text(),
            "step 1\r\x1b[K"
            "a line\nstep 1\r\x1b[K");
}

TEST(Console, WithoutATerminalThereAreNoLiveLines) {
  const Paper paper;
  Console console({.output = paper.number(), .error = paper.number()});
  console.show_live(0, "step 1");
  EXPECT_TRUE(console.finish(Deadline::after(5s)));
  EXPECT_EQ(paper.text(), "");
}

}  // namespace
}  // namespace lockstep
