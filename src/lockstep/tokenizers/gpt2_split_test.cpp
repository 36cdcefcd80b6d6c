#include "lockstep/tokenizers/gpt2_split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/tokenizers/unicode.h"

namespace lockstep {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = gpt2_piece_end(text, at);
    pieces.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return pieces;
}

// The expected pieces are those of Python's regex module with GPT-2's pattern.
TEST(Gpt2Split, KeepsASpaceWithTheWordThatFollows) {
  EXPECT_EQ(split("Hello world! tokenization"), (Pieces{"Hello", " world", "!", " tokenization"}));
  EXPECT_EQ(split("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(split("a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
  EXPECT_EQ(split("end  \n"), (Pieces{"end", "  \n"}));
  EXPECT_EQ(split(" "), Pieces{" "});
}

TEST(Gpt2Split, SplitsOnlyLowerCaseContractions) {
  EXPECT_EQ(split("I'll it's"), (Pieces{"I", "'ll", " it", "'s"}));
  EXPECT_EQ(split("IT'S"), (Pieces{"IT", "'", "S"}));
  EXPECT_EQ(split("'tis ''"), (Pieces{"'t", "is", " ''"}));
  EXPECT_EQ(split(" 's"), (Pieces{" '", "s"})) << "the quote belongs to the piece of the space";
}

TEST(Gpt2Split, SeparatesLettersNumbersAndOtherCharacters) {
  EXPECT_EQ(split("abc123!? x²"), (Pieces{"abc", "123", "!?", " x", "²"}));
  EXPECT_EQ(split("漢字 привет"), (Pieces{"漢字", " привет"}));
  EXPECT_EQ(split("e\u0301"), (Pieces{"e", "\u0301"})) << "a combining accent is not a letter";
  EXPECT_EQ(split("a\u00a0b"), (Pieces{"a", "\u00a0", "b"}));
}

// A cut is correct if the pieces of the two parts are the pieces of the whole.
TEST(Gpt2Split, CutsOnlyWhereAPieceEnds) {
  const std::string text =
      "It's  one\n two'll three   don't 4 five six!? seven\u00e9 eight 'nine ten";
  for (std::size_t from = 0; from <= text.size(); ++from) {
    const auto cut = gpt2_cut(text, from);
    ASSERT_GE(cut, from);
    auto parts = split(std::string_view(text).substr(0, cut));
    const auto second = split(std::string_view(text).substr(cut));
    parts.insert(parts.end(), second.begin(), second.end());
    EXPECT_EQ(parts, split(text)) << from;
  }
  EXPECT_EQ(gpt2_cut("one two", 0), 3u);
  EXPECT_EQ(gpt2_cut("one  two", 0), 8u) << "two spaces are not a safe position";
}

TEST(Unicode, ClassesAreThoseOfUnicode16) {
  EXPECT_EQ(classify(U'A'), CodePointClass::letter);
  EXPECT_EQ(classify(0x1c89), CodePointClass::letter) << "new in 16.0";
  EXPECT_EQ(classify(0x558), CodePointClass::other) << "newer than 16.0";
  EXPECT_EQ(classify(0xbd), CodePointClass::number);
  EXPECT_EQ(classify(0x85), CodePointClass::space);
  EXPECT_EQ(classify(0x1c), CodePointClass::other) << "white space in Python, not in Unicode";
  int letters = 0;
  int numbers = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    letters += classify(c) == CodePointClass::letter ? 1 : 0;
    numbers += classify(c) == CodePointClass::number ? 1 : 0;
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
}

TEST(Unicode, FindsTheFirstByteThatIsNotUtf8) {
  EXPECT_EQ(try_find_invalid_utf8("plain, long enough for words"), std::nullopt);
  EXPECT_EQ(try_find_invalid_utf8("\u00e9\u6f22\U0001f600"), std::nullopt);
  EXPECT_EQ(try_find_invalid_utf8("12345678\xff"), 8u);
  EXPECT_EQ(try_find_invalid_utf8("a\xc0\xaf"), 1u) << "overlong";
  EXPECT_EQ(try_find_invalid_utf8("a\xed\xa0\x80"), 1u) << "surrogate";
  EXPECT_EQ(try_find_invalid_utf8("\xf4\x90\x80\x80"), 0u) << "beyond U+10FFFF";
  EXPECT_EQ(try_find_invalid_utf8("caf\xc3"), 3u) << "truncated";
}

}  // namespace
}  // namespace lockstep
