#include "lockstep/tokenizers/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/tokenizers/bpe_tokenizer.h"
#include "lockstep/tokenizers/table_files_internal.h"

namespace lockstep {
namespace {

std::vector<Token> encode(Tokenizer& tokenizer, std::string_view text) {
  std::vector<Token> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(accepted)";
}

BpeTable merges_table(const std::string& text) {
  return BpeTable::from_gpt2(FileBytes::of("vocab.bpe", text), std::nullopt);
}

TEST(ByteTokenizer, EveryByteIsItsValue) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(encode(*tokenizer, "a\xff"), (std::vector<Token>{97, 255}));
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{97, 255}), "a\xff");
  EXPECT_EQ(tokenizer->vocabulary_size(), 256u);
  EXPECT_FALSE(tokenizer->end_of_text());
  EXPECT_THROW((void)tokenizer->decode(std::vector<Token>{256}), UsageError);
}

TEST(BpeTokenizer, MergesLowestRankFirst) {
  // "ab" is learnt before "bc": abc is ab + c. Numbers: 256 ab, 257 bc, 258 end of text.
  const auto tokenizer = bpe_tokenizer(merges_table("#version: 0.2\na b\nb c\n"));
  EXPECT_EQ(encode(*tokenizer, "abc"), (std::vector<Token>{256, 'c' - 33}));
  EXPECT_EQ(encode(*tokenizer, "bcab"), (std::vector<Token>{257, 256}));
  EXPECT_EQ(tokenizer->end_of_text(), 258u);
  EXPECT_EQ(tokenizer->decode(std::vector<Token>{257, 258}), "bc<|endoftext|>");
  EXPECT_EQ(encode(*tokenizer, "<|endoftext|>").size(), 13u) << "text, not the special token";
}

TEST(BpeTokenizer, DecodesWhatItEncoded) {
  auto tokenizer = bpe_tokenizer(merges_table(sample_vocab_bpe()));
  RandomStream random({.seed = 3, .purpose = random_purpose("text")}, 0, 0);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (auto count = random.below(400); count > 0; --count) {
      text += std::string_view("aab  \n'sé1!")[random.below(8)];
    }
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
    EXPECT_EQ(encode(*tokenizer->clone(), text), encode(*tokenizer, text));
  }
}

TEST(BpeTokenizer, ALongPieceDoesNotTakeQuadraticTime) {
  const auto tokenizer = bpe_tokenizer(merges_table("a a\naa aa\naaaa aaaa\n"));
  const auto tokens = encode(*tokenizer, std::string(1 << 20, 'a'));
  EXPECT_EQ(tokens.size(), (1u << 20) / 8);
}

TEST(BpeTokenizer, TextThatIsNotUtf8IsRefusedWithItsOffset) {
  const auto tokenizer = bpe_tokenizer(merges_table("a b\n"));
  EXPECT_EQ(message_of([&] { encode(*tokenizer, "caf\xe9 x"); }),
            "byte 3 of the text is 0xe9, which is not valid UTF-8; convert the text to UTF-8");
}

TEST(BpeTable, RefusalsNameFileAndOffset) {
  EXPECT_EQ(
      message_of([] { merges_table("#version: 0.2\nab\n"); }),
      "vocab.bpe, byte 14: expected two tokens in GPT-2's letters, separated by a space, found "
      "\"ab\"");
  EXPECT_EQ(message_of([] { merges_table("a bc\n"); }),
            "vocab.bpe, byte 0: expected a new merge of two tokens of vocab.bpe into a third, "
            "found \"a\" and \"bc\"");
  EXPECT_EQ(
      message_of(
          [] { (void)BpeTable::from_tiktoken(FileBytes::of("t.tiktoken", "YQ== 0\nYg 1\n")); }),
      "t.tiktoken, byte 7: expected a token in base64, a space and the rank 1, found \"Yg 1\"");
  EXPECT_EQ(message_of([] {
              (void)BpeTable::from_gpt2(FileBytes::of("vocab.bpe", ""),
                                        FileBytes::of("encoder.json", R"({"a":0,"b":2})"));
            }),
            "encoder.json, byte 0: expected 2 different tokens with numbers 0 to 1, found \"b\" "
            "with number 2, which is too large or already used");
}

TEST(BpeTable, IsTheSameFromEveryFileFormat) {
  auto merges = bpe_tokenizer(merges_table(sample_vocab_bpe()));
  auto ranks = bpe_tokenizer(BpeTable::from_tiktoken(FileBytes::of("t", sample_tiktoken())));
  auto numbered = bpe_tokenizer(BpeTable::from_gpt2(FileBytes::of("v", sample_vocab_bpe()),
                                                    FileBytes::of("e", sample_encoder_json())));
  for (const std::string text : {"the cat's then", "  there\n", "aaaa"}) {
    EXPECT_EQ(encode(*merges, text), encode(*ranks, text));
    EXPECT_EQ(encode(*merges, text), encode(*numbered, text));
  }
  EXPECT_EQ(merges->end_of_text(), ranks->end_of_text());
  EXPECT_EQ(merges->end_of_text(), numbered->end_of_text());
}

// 200 mutations per file; the fuzz target continues from here.
TEST(BpeTable, MutatedFilesAreRefusedOrRead) {
  int num_refused = 0;
  for (int kind = 0; kind < kNumTableFiles; ++kind) {
    for (std::uint64_t round = 0; round < 200; ++round) {
      auto bytes = sample_table_file(kind);
      RandomStream random({.seed = 5, .purpose = random_purpose("mutate")}, round,
                          static_cast<std::uint64_t>(kind));
      for (auto faults = 1 + random.below(3); faults > 0; --faults) {
        const auto at = random.below(bytes.size());
        if (random.below(4) == 0) {
          bytes.erase(at, 1 + random.below(20));
        } else {
          bytes[at] = static_cast<char>(random.below(256));
        }
      }
      try {
        use_table_file(kind, bytes);
      } catch (const UsageError&) {
        ++num_refused;
      }
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST(OpenTokenizer, AcceptsFilesAndFolders) {
  const std::filesystem::path folder = testing::TempDir() + "tokenizer_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "vocab.bpe") << sample_vocab_bpe();
  std::ofstream(folder / "small.tiktoken") << sample_tiktoken();
  const auto wanted = encode(*open_tokenizer(folder), "the then");
  EXPECT_EQ(encode(*open_tokenizer(folder / "vocab.bpe"), "the then"), wanted);
  EXPECT_EQ(encode(*open_tokenizer(folder / "small.tiktoken"), "the then"), wanted);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(open_tokenizer("bytes")->vocabulary_size(), 256u);
  EXPECT_NE(message_of([] { (void)open_tokenizer("gpt3"); }).find("\"gpt3\" is not a tokenizer"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
