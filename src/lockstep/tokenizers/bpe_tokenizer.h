// GPT-2's tokenizer: splits text into pieces (gpt2_split.h) and merges the bytes of each piece
// (bpe_table.h). Tokens of recent pieces are cached, so that ordinary text needs one lookup per
// word.
#pragma once

#include <memory>

#include "lockstep/tokenizers/bpe_table.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep {

/// A tokenizer with these tables.
[[nodiscard]] std::unique_ptr<Tokenizer> bpe_tokenizer(BpeTable table);

}  // namespace lockstep
