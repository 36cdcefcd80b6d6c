#include <limits>
#include <queue>
#include <tuple>

#include "lockstep/tokenizers/bpe_merge_internal.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kShortPiece = 48;  // up to this length, a scan of all pairs is faster

BpeMerge merge_or_none(const BpeTable& table, Token left, Token right) {
  return table.try_merge(left, right).value_or(BpeMerge{.rank = kNoRank, .merged = 0});
}

// merges[i] is the merge of tokens[i] and tokens[i + 1].
void merge_short(const BpeTable& table, std::vector<Token>& tokens) {
  std::array<BpeMerge, kShortPiece> merges{};
  std::size_t size = tokens.size();
  for (std::size_t i = 0; i + 1 < size; ++i) {
    merges[i] = merge_or_none(table, tokens[i], tokens[i + 1]);
  }
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    tokens[best] = merges[best].merged;
    --size;
    for (std::size_t i = best + 1; i < size; ++i) tokens[i] = tokens[i + 1];
    for (std::size_t i = best + 1; i + 1 < size; ++i) merges[i] = merges[i + 1];
    if (best > 0) merges[best - 1] = merge_or_none(table, tokens[best - 1], tokens[best]);
    if (best + 1 < size) merges[best] = merge_or_none(table, tokens[best], tokens[best + 1]);
  }
  tokens.resize(size);
}

// A linked list with a heap of candidate merges. A candidate is stale if one of its tokens has
// since been merged; this is checked when it is popped.
class LongMerge {
 public:
  LongMerge(const BpeTable& table, std::vector<Token>& tokens) : table_(table), tokens_(tokens) {
    before_.resize(tokens.size());
    after_.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      before_[i] = i - 1;
      after_[i] = i + 1;
    }
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) offer(i);
  }

  void run() {
    while (!heap_.empty()) {
      const auto best = heap_.top();
      heap_.pop();
      const auto right = is_gone(best.at) ? tokens_.size() : after_[best.at];
      if (right == tokens_.size() || tokens_[best.at] != best.left ||
          tokens_[right] != best.right) {
        continue;
      }
      tokens_[best.at] = best.merged;
      after_[best.at] = after_[right];
      if (after_[right] < tokens_.size()) before_[after_[right]] = best.at;
      after_[right] = kGone;
      if (best.at > 0) offer(before_[best.at]);
      offer(best.at);
    }
    std::size_t size = 0;
    for (std::size_t i = 0; i < tokens_.size(); i = after_[i]) tokens_[size++] = tokens_[i];
    tokens_.resize(size);
  }

 private:
  static constexpr std::size_t kGone = std::numeric_limits<std::size_t>::max();

  struct Candidate {
    std::uint32_t rank;
    Token merged;
    Token left;
    Token right;
    std::size_t at;

    bool operator>(const Candidate& other) const {
      return std::tie(rank, at) > std::tie(other.rank, other.at);
    }
  };

  [[nodiscard]] bool is_gone(std::size_t at) const { return after_[at] == kGone; }
  void offer(std::size_t at) {
    const auto right = after_[at];
    if (right >= tokens_.size()) return;
    if (const auto merge = table_.try_merge(tokens_[at], tokens_[right])) {
      heap_.push({merge->rank, merge->merged, tokens_[at], tokens_[right], at});
    }
  }

  const BpeTable& table_;
  std::vector<Token>& tokens_;
  std::vector<std::size_t> before_;
  std::vector<std::size_t> after_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap_;
};

}  // namespace

void merge_tokens(const BpeTable& table, std::vector<Token>& tokens) {
  if (tokens.size() <= kShortPiece) {
    merge_short(table, tokens);
  } else {
    LongMerge(table, tokens).run();
  }
}

}  // namespace lockstep
