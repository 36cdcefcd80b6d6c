// GPT-2's tokenizer: text is split into pieces (gpt2_split.h), each piece's bytes are merged
// (bpe_table.h). Pieces met before are remembered, so that ordinary text costs one look-up a word.
#pragma once

#include <memory>

#include "lockstep/tokenizers/bpe_table.h"
#include "lockstep/tokenizers/tokenizer.h"

namespace lockstep {

[[nodiscard]] std::unique_ptr<Tokenizer> bpe_tokenizer(BpeTable table);

}  // namespace lockstep
