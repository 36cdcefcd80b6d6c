#include "lockstep/launch/line_splitter.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Lines = std::vector<std::string>;

Lines split(std::string_view text, std::size_t piece) {
  LineSplitter splitter;
  Lines lines;
  for (std::size_t at = 0; at < text.size(); at += piece)
    splitter.feed(text.substr(at, piece), lines);
  if (auto last = splitter.finish()) lines.push_back(*last);
  return lines;
}

TEST(LineSplitter, LinesDoNotDependOnChunkSizes) {
  const std::string text = "one\n\ntwo\r\nold\rnew\n10%\r20%\r\n\rx\r\r\ny\r";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(text, piece), (Lines{"one", "", "two", "new", "20%", "x", "y"})) << piece;
  }
}

TEST(LineSplitter, TheLastLineNeedsNoNewline) {
  EXPECT_EQ(split("a\nb", 3), (Lines{"a", "b"}));
  EXPECT_EQ(split("a\n", 3), Lines{"a"});
  EXPECT_EQ(split("", 3), Lines{});
}

TEST(LineSplitter, AVeryLongLineIsCutAndMarked) {
  const std::string text = std::string(1'000'000, 'x') + "\nnext\n";
  for (const std::size_t piece : {1000u, 4096u, 65536u, 2'000'000u}) {
    EXPECT_EQ(split(text, piece),
              (Lines{std::string(4096, 'x') + " … (995904 bytes more in the log)", "next"}))
        << piece;
  }
}

TEST(LineSplitter, AnOverwrittenLineIsNotMarkedAsCut) {
  EXPECT_EQ(split(std::string(10'000, 'x') + "\rshort\n", 999), Lines{"short"});
}

TEST(LineSplitter, EveryByteButTheLineEndsIsKept) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte != '\n' && byte != '\r') all += static_cast<char>(byte);
  }
  EXPECT_EQ(split(all + "\n", 7), Lines{all});
}

}  // namespace
}  // namespace lockstep
