// The merge loop of byte-pair encoding: applies merges to the byte tokens of a piece of text,
// lowest rank first, leftmost first among equal ranks, until none applies.
#pragma once

#include <vector>

#include "lockstep/tokenizers/bpe_table.h"

namespace lockstep {

/// Merges `tokens` in place, in O(n log n) time.
void merge_tokens(const BpeTable& table, std::vector<Token>& tokens);

}  // namespace lockstep
