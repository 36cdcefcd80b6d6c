// Writes lockstep's tokens of each file, for bpe_agreement.py to compare: `bpe_tokens TOKENIZER
// FILE...` prints, per file, the number of tokens and then each token, as 4 bytes, little-endian.
// For a file that is refused, the number is 0xffffffff.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/formats/file_bytes.h"
#include "lockstep/tokenizers/tokenizer.h"

int main(int num_arguments, char** arguments) try {
  const auto tokenizer = lockstep::open_tokenizer(num_arguments > 1 ? arguments[1] : "");
  for (int i = 2; i < num_arguments; ++i) {
    std::vector<lockstep::Token> tokens(1);
    try {
      tokenizer->encode(lockstep::FileBytes::map(arguments[i]).text(), tokens);
      tokens[0] = static_cast<std::uint32_t>(tokens.size() - 1);
    } catch (const lockstep::UsageError&) {
      tokens[0] = 0xffffffff;
    }
    std::fwrite(tokens.data(), sizeof tokens[0], tokens.size(), stdout);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
