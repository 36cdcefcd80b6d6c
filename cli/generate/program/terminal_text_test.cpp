#include "cli/generate/program/terminal_text.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using namespace std::string_literals;

const std::string kUnknown = "\xef\xbf\xbd";

std::string shown(const std::string& text) {
  TerminalText terminal;
  auto whole = terminal.add(text);
  whole += terminal.end();
  // The same byte by byte.
  TerminalText slow;
  std::string pieces;
  for (const char byte : text) pieces += slow.add({&byte, 1});
  pieces += slow.end();
  EXPECT_EQ(pieces, whole);
  return whole;
}

TEST(TerminalText, PlainTextIsShownUnchanged) {
  EXPECT_EQ(shown("O Romeo,\n\twherefore"), "O Romeo,\n\twherefore");
  EXPECT_EQ(shown("über 5 € und 😀"), "über 5 € und 😀");
}

TEST(TerminalText, ACharacterIsShownOnceItIsComplete) {
  TerminalText terminal;
  EXPECT_EQ(terminal.add("a\xe2"), "a");
  EXPECT_EQ(terminal.add("\x82"), "");
  EXPECT_EQ(terminal.add("\xac!"), "€!");
  EXPECT_EQ(terminal.end(), "");
}

TEST(TerminalText, ControlCharactersAreReplaced) {
  EXPECT_EQ(shown("\x1b[2J"), kUnknown + "[2J");
  EXPECT_EQ(shown("a\rb\x7f\0"s), "a" + kUnknown + "b" + kUnknown + kUnknown);
  EXPECT_EQ(shown("\xc2\x9b"
                  "31m"),
            kUnknown + "31m");  // the eight-bit form of the same
}

TEST(TerminalText, InvalidUtf8IsOneReplacementPerAttempt) {
  EXPECT_EQ(shown("\xff"
                  "a\x80"),
            kUnknown + "a" + kUnknown);
  EXPECT_EQ(shown("\xe2\x82"), kUnknown);
  EXPECT_EQ(shown("\xe2\x82"
                  "a"),
            kUnknown + "a");
  EXPECT_EQ(shown("\xc0\xaf"), kUnknown) << "overlong";
  EXPECT_EQ(shown("\xed\xa0\x80"), kUnknown) << "half a pair";
}

}  // namespace
}  // namespace lockstep::cli
