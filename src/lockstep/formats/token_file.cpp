#include "lockstep/formats/token_file.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/assert.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kLlmcHeaderBytes = 1024;
constexpr std::int32_t kLlmcMagic16 = 20240520;
constexpr std::int32_t kLlmcMagic32 = 20240801;

std::int32_t word(const FileBytes& file, std::size_t index) {
  return little_endian<std::int32_t>(file.bytes().subspan(index * 4));
}

bool has_llmc_magic(const FileBytes& file) {
  return file.size() >= 4 && (word(file, 0) == kLlmcMagic16 || word(file, 0) == kLlmcMagic32);
}

// Copies tokens of one width; compilers vectorize it. Uses memcpy, because the tokens may be
// unaligned.
template <typename Token>
void widen(std::span<const std::byte> from, std::span<std::int64_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = little_endian<Token>(from.subspan(i * sizeof(Token), sizeof(Token)));
  }
}

}  // namespace

TokenFile::TokenFile(FileBytes file, TokenLayout layout) : file_(std::move(file)), layout_(layout) {
  if (layout == TokenLayout::detect) {
    layout_ = has_llmc_magic(file_) ? TokenLayout::llmc : TokenLayout::raw_uint16;
  }
  if (layout_ != TokenLayout::llmc) {
    token_bytes_ = layout_ == TokenLayout::raw_uint32 ? 4 : 2;
    if (const auto remainder = file_.size() % token_bytes_; remainder != 0) {
      refuse(
          file_, file_.size() - remainder,
          fmt::format("expected tokens of {} bytes, found {} left over", token_bytes_, remainder));
    }
    num_tokens_ = file_.size() / token_bytes_;
    return;
  }
  require_bytes(file_, 0, kLlmcHeaderBytes, "the llm.c header");
  const auto magic = word(file_, 0);
  if (!has_llmc_magic(file_)) {
    refuse(file_, 0,
           fmt::format("expected the llm.c magic number {} (uint16) or {} (uint32), found {}",
                       kLlmcMagic16, kLlmcMagic32, magic));
  }
  const int version_wanted = magic == kLlmcMagic16 ? 1 : 7;
  if (word(file_, 1) != version_wanted) {
    refuse(file_, 4,
           fmt::format("expected version {} after magic number {}, found {}", version_wanted, magic,
                       word(file_, 1)));
  }
  token_bytes_ = magic == kLlmcMagic16 ? 2 : 4;
  const auto claimed = word(file_, 2);
  const auto data_bytes = file_.size() - kLlmcHeaderBytes;
  if (claimed < 0 || data_bytes % token_bytes_ != 0 ||
      static_cast<std::uint64_t>(claimed) != data_bytes / token_bytes_) {
    refuse(file_, 8,
           fmt::format("the header claims {} tokens of {} bytes, found {} bytes after it", claimed,
                       token_bytes_, data_bytes));
  }
  data_offset_ = kLlmcHeaderBytes;
  num_tokens_ = static_cast<std::uint64_t>(claimed);
}

void TokenFile::read(std::uint64_t first, std::span<std::int64_t> out) const {
  LOCKSTEP_ASSERT(first <= num_tokens_ && out.size() <= num_tokens_ - first,
                  "the range of tokens is within the file");
  const auto from = file_.bytes().subspan(data_offset_ + first * token_bytes_);
  if (token_bytes_ == 2) {
    widen<std::uint16_t>(from, out);
  } else {
    widen<std::uint32_t>(from, out);
  }
}

std::string_view token_layout_words(TokenLayout layout, unsigned token_bytes) {
  if (layout == TokenLayout::llmc) {
    return token_bytes == 2 ? "llm.c tokens, uint16" : "llm.c tokens, uint32";
  }
  return token_bytes == 2 ? "raw uint16 tokens" : "raw uint32 tokens";
}

}  // namespace lockstep
