// The merging itself: a piece of text, as the tokens of its bytes, to as few tokens as the merges
// make of it, lowest rank first, leftmost first among equals.
#pragma once

#include <vector>

#include "lockstep/tokenizers/bpe_table.h"

namespace lockstep {

/// Merges `tokens` in place. Takes time n log n; short pieces are quicker than that says.
void merge_tokens(const BpeTable& table, std::vector<Token>& tokens);

}  // namespace lockstep
