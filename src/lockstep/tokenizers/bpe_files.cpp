#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <unordered_map>

#include "lockstep/base/quote.h"
#include "lockstep/formats/refusal.h"
#include "lockstep/formats/text_file.h"
#include "lockstep/tokenizers/base64_internal.h"
#include "lockstep/tokenizers/bpe_merge_internal.h"
#include "lockstep/tokenizers/bpe_table.h"
#include "lockstep/tokenizers/byte_letters_internal.h"
#include "lockstep/tokenizers/encoder_json_internal.h"

namespace lockstep {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

using Numbers = std::unordered_map<std::string, Token>;

struct MergeLine {
  std::string left;
  std::string right;
  std::uint64_t offset;
};

std::vector<MergeLine> read_merge_lines(const FileBytes& file) {
  const TextFile lines(file, {.documents = DocumentBreak::line});
  std::vector<MergeLine> merges;
  for (std::uint64_t i = 0; i < lines.num_documents(); ++i) {
    const auto line = lines.document(i);
    if (i == 0 && line.starts_with("#version")) continue;
    const auto space = std::min(line.find(' '), line.size());
    auto left = try_bytes_of_letters(line.substr(0, space));
    auto right = try_bytes_of_letters(line.substr(std::min(space + 1, line.size())));
    if (!left || !right || left->empty() || right->empty()) {
      refuse(file, lines.offset(i),
             fmt::format("expected two tokens in GPT-2's letters, separated by a space, found {}",
                         in_quotes(line)));
    }
    merges.push_back({std::move(*left), std::move(*right), lines.offset(i)});
  }
  return merges;
}

std::vector<std::string> tokens_by_rule(const std::vector<MergeLine>& merges) {
  std::vector<std::string> tokens;
  for (const auto byte : bytes_in_order()) tokens.emplace_back(1, static_cast<char>(byte));
  for (const auto& merge : merges) tokens.push_back(merge.left + merge.right);
  tokens.emplace_back(kEndOfText);
  return tokens;
}

Numbers numbers_of(const FileBytes& file, const std::vector<std::string>& tokens) {
  Numbers numbers;
  for (const auto& token : tokens) {
    if (!numbers.emplace(token, static_cast<Token>(numbers.size())).second) {
      refuse(file, 0, fmt::format("expected each token once, found {} twice", in_quotes(token)));
    }
  }
  return numbers;
}

std::array<Token, 256> numbers_of_bytes(const FileBytes& file, const Numbers& numbers) {
  std::array<Token, 256> result{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = numbers.find(std::string(1, static_cast<char>(byte)));
    if (found == numbers.end()) {
      refuse(file, 0,
             fmt::format("expected a token for every byte, found none for 0x{:02x}", byte));
    }
    result[byte] = found->second;
  }
  return result;
}

struct RankLine {
  std::string bytes;
  std::uint64_t offset;
};

// The tokens in the order of their ranks. The file must list ranks 0 to n - 1 in this order.
std::vector<RankLine> read_rank_lines(const FileBytes& file) {
  const TextFile lines(file, {.documents = DocumentBreak::line});
  std::vector<RankLine> ranks;
  for (std::uint64_t i = 0; i < lines.num_documents(); ++i) {
    const auto line = lines.document(i);
    const auto space = std::min(line.find(' '), line.size());
    auto bytes = try_base64(line.substr(0, space));
    std::uint64_t rank = 0;
    const char* end = line.data() + line.size();
    const auto [stopped, error] =
        std::from_chars(line.data() + std::min(space + 1, line.size()), end, rank);
    if (!bytes || bytes->empty() || error != std::errc{} || stopped != end || rank != i) {
      refuse(file, lines.offset(i),
             fmt::format("expected a token in base64, a space and the rank {}, found {}", i,
                         in_quotes(line)));
    }
    ranks.push_back({std::move(*bytes), lines.offset(i)});
  }
  return ranks;
}

void refuse_other_splits(const FileBytes& file, std::size_t num_ranks) {
  constexpr std::size_t cl100k = 100256;
  constexpr std::size_t o200k = 199998;
  if (num_ranks != cl100k && num_ranks != o200k) return;
  refuse(file, 0,
         fmt::format("expected a table that splits text as GPT-2 does, such as r50k_base, found {} "
                     "ranks, which is {}: its pattern is unsupported",
                     num_ranks, num_ranks == cl100k ? "cl100k_base" : "o200k_base"));
}

}  // namespace

BpeTable BpeTable::from_gpt2(const FileBytes& vocab_bpe,
                             const std::optional<FileBytes>& encoder_json) {
  const auto merges = read_merge_lines(vocab_bpe);
  const auto& named_by = encoder_json ? *encoder_json : vocab_bpe;
  BpeTable table;
  table.tokens_ = encoder_json ? read_encoder_json(*encoder_json) : tokens_by_rule(merges);
  const auto numbers = numbers_of(named_by, table.tokens_);
  table.bytes_ = numbers_of_bytes(named_by, numbers);
  table.reserve_merges(merges.size());
  std::uint32_t rank = 0;
  for (const auto& merge : merges) {
    const auto left = numbers.find(merge.left);
    const auto right = numbers.find(merge.right);
    const auto merged = numbers.find(merge.left + merge.right);
    if (left == numbers.end() || right == numbers.end() || merged == numbers.end() ||
        !table.add_merge(left->second, right->second, {rank++, merged->second})) {
      refuse(vocab_bpe, merge.offset,
             fmt::format("expected a new merge of two tokens of {} into a third, found {} and {}",
                         named_by.name(), in_quotes(merge.left), in_quotes(merge.right)));
    }
  }
  if (const auto end = numbers.find(std::string(kEndOfText)); end != numbers.end()) {
    table.end_of_text_ = end->second;
  }
  return table;
}

BpeTable BpeTable::from_tiktoken(const FileBytes& file) {
  const auto ranks = read_rank_lines(file);
  refuse_other_splits(file, ranks.size());
  BpeTable table;
  for (const auto& rank : ranks) table.tokens_.push_back(rank.bytes);
  table.bytes_ = numbers_of_bytes(file, numbers_of(file, table.tokens_));
  table.reserve_merges(ranks.size());
  // The file has no merges. The merge of a token is recovered by encoding its bytes with all lower
  // ranks, which gives two tokens.
  std::vector<Token> parts;
  for (Token number = 0; number < ranks.size(); ++number) {
    const auto& bytes = ranks[number].bytes;
    if (bytes.size() == 1) continue;
    parts.clear();
    for (const char byte : bytes) {
      parts.push_back(table.token_of_byte(static_cast<unsigned char>(byte)));
    }
    merge_tokens(table, parts);
    if (parts.size() != 2 || !table.add_merge(parts[0], parts[1], {number, number})) {
      refuse(file, ranks[number].offset,
             fmt::format("expected a token that is a merge of two tokens of lower rank, found {}, "
                         "which lower ranks encode as {} tokens",
                         in_quotes(bytes), parts.size()));
    }
  }
  table.end_of_text_ = static_cast<Token>(table.tokens_.size());
  table.tokens_.emplace_back(kEndOfText);
  return table;
}

}  // namespace lockstep
