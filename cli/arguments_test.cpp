#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// One argument of each type.
struct Example {
  bool help = false;
  bool flag = false;
  std::optional<bool> choice;
  std::string text = "unchanged";
  std::optional<std::string> last;
  int count = 7;
  std::uint64_t large = 0;
  double factor = 0;
  std::vector<int> list = {1};
  Words files;
  Arguments arguments{"example", help};

  Example() {
    arguments.flag("--flag", flag);
    arguments.flag("--choice,!--no-choice", choice);
    arguments.option("-t,--text", text);
    arguments.option("--last", last);
    arguments.option("--count", count, {1, 9});
    arguments.option("--large", large);
    arguments.option("--factor", factor);
    arguments.option("--list", list);
    arguments.option("files", files);
  }
};

TEST(Arguments, AnArgumentThatIsNotGivenKeepsItsValue) {
  Example example;
  example.arguments.read({});
  EXPECT_EQ(example.text, "unchanged");
  EXPECT_EQ(example.count, 7);
  EXPECT_EQ(example.list, std::vector{1});
  EXPECT_EQ(example.last, std::nullopt);
  EXPECT_EQ(example.choice, std::nullopt);
}

TEST(Arguments, EveryTypeIsRead) {
  Example example;
  example.arguments.read({"a", "--flag", "-t", "-x", "--count=9", "--large", "18446744073709551615",
                          "--factor", "1e-3", "b", "--list", "3,4"});
  EXPECT_TRUE(example.flag);
  EXPECT_EQ(example.text, "-x");
  EXPECT_EQ(example.count, 9);
  EXPECT_EQ(example.large, 18446744073709551615U);
  EXPECT_EQ(example.factor, 1e-3);
  EXPECT_EQ(example.list, (std::vector{3, 4}));
  EXPECT_EQ(example.files, (Words{"a", "b"}));
  EXPECT_FALSE(example.help);
}

TEST(Arguments, AnOptionMayBeRepeatedOnlyWhereThatWasDeclared) {
  Example example;
  example.arguments.read({"--last", "a", "--choice", "--last", "", "--no-choice"});
  EXPECT_EQ(example.last, "");
  EXPECT_EQ(example.choice, false);
  EXPECT_NE(refusal([] { Example().arguments.read({"-t", "a", "-t", "b"}); }), "");
}

TEST(Arguments, ANumberOutsideItsRangeIsNamedWithTheRange) {
  for (const char* wrong : {"0", "10", "x"}) {
    const auto words = refusal([&] { Example().arguments.read({"--count", wrong}); });
    EXPECT_NE(words.find("--count: \"" + std::string(wrong) + "\" is not a number from 1 to 9"),
              std::string::npos)
        << words;
  }
}

TEST(Arguments, ReadingTheLeadingArgumentsReturnsTheOthersUnread) {
  bool help = false;
  int count = 0;
  Arguments arguments("example", help);
  arguments.option("-n", count);
  EXPECT_EQ(arguments.read_leading({"-n", "2", "program", "-n", "3", "--help"}),
            (Words{"program", "-n", "3", "--help"}));
  EXPECT_EQ(count, 2);
  EXPECT_FALSE(help);
}

TEST(Arguments, AnOptionOrAWordThatWasNotDeclaredIsRefused) {
  EXPECT_EQ(refusal([] { Example().arguments.read({"--txet=1"}); }),
            "\"--txet=1\" is not an option of lockstep example; did you mean --text? "
            "`lockstep example --help` lists the options.");
  bool help = false;
  Arguments none("none", help);
  EXPECT_EQ(refusal([&] { none.read({"stray"}); }),
            "\"stray\" is an unexpected argument; `lockstep none --help` lists the arguments");
}

TEST(Arguments, AnUnknownOptionIsExplained) {
  bool help = false;
  Arguments arguments("example", help);
  arguments.explain_unknown([](const std::string& option) -> std::optional<std::string> {
    if (option != "--old" && option != "--older") return std::nullopt;
    return option + " is now --new";
  });
  EXPECT_EQ(
      refusal([&] {
        arguments.read({"--old=1", "2", "--older", "3"});
      }),
      "--old is now --new; --older is now --new; `lockstep example --help` lists the options");
  EXPECT_NE(refusal([&] { arguments.read({"--other"}); }).find("not an option"), std::string::npos);
}

TEST(ReadToml, ItemsComeInTheirOrderWithTheirSection) {
  std::istringstream file("lr = 3e-4  # a comment\nhidden = [5, 6]\n[data]\nname = \"x y\"\n");
  const auto items = read_toml(file, "a.toml");
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[0].name + "|" + items[0].text, "lr|3e-4");
  EXPECT_EQ(items[1].name + "|" + items[1].text, "hidden|5,6");
  EXPECT_EQ(items[2].name + "|" + items[2].text, "data.name|x y");
}

}  // namespace
}  // namespace lockstep::cli
