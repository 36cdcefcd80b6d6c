#include "lockstep/formats/file_kind.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/formats/cifar_file.h"
#include "lockstep/formats/gzip_internal.h"
#include "lockstep/formats/refusal.h"

namespace lockstep {
namespace {

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](auto ending) { return name.ends_with(ending); });
}

bool has_idx_magic(std::span<const std::byte> bytes) {
  if (bytes.size() < 4) return false;
  const auto type = std::to_integer<int>(bytes[2]);
  const auto num_dims = std::to_integer<int>(bytes[3]);
  return bytes[0] == std::byte{0} && bytes[1] == std::byte{0} && type >= 8 && type <= 0x0e &&
         num_dims > 0 && num_dims <= 8;
}

bool holds_idx(const FileBytes& file) {
  if (!is_gzip(file.bytes())) return has_idx_magic(file.bytes());
  try {
    std::array<std::byte, 4> first{};
    Inflater(file, DeflateWrapper::gzip).read(first, "the IDX magic number");
    return has_idx_magic(first);
  } catch (const UsageError&) {
    return false;
  }
}

bool holds_llmc(const FileBytes& file) {
  if (file.size() < 1024) return false;
  const auto magic = little_endian<std::uint32_t>(file.bytes());
  return magic == 20240520 || magic == 20240801;
}

bool holds_cifar(const FileBytes& file) {
  if (file.size() == 0 || (file.size() % (CifarFile::kPixelBytes + 1) != 0 &&
                           file.size() % (CifarFile::kPixelBytes + 2) != 0)) {
    return false;
  }
  try {
    const CifarFile attempt(file);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

bool looks_like_text(const FileBytes& file) {
  const auto start = file.text().substr(0, 4096);
  return !start.empty() && std::ranges::none_of(start, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f';
  });
}

}  // namespace

FileKind identify(const FileBytes& file) {
  const std::string_view name = file.name();
  if (file.text().starts_with("\x93NUMPY")) return FileKind::npy;
  if (name.ends_with(".npz")) return FileKind::npz;
  if (name.ends_with(".safetensors")) return FileKind::safetensors;
  if (holds_llmc(file)) return FileKind::llmc_tokens;
  if (ends_with_any(name, {".csv", ".tsv"})) return FileKind::csv;
  if (ends_with_any(name, {".jsonl", ".ndjson"})) return FileKind::jsonl;
  if (ends_with_any(name, {".txt", ".md"})) return FileKind::text;
  if (name.ends_with(".bin") && holds_cifar(file)) return FileKind::cifar;
  if (ends_with_any(name, {".bin", ".tok", ".u16", ".u32"})) return FileKind::raw_tokens;
  if (holds_idx(file)) return FileKind::idx;
  return looks_like_text(file) ? FileKind::text : FileKind::unknown;
}

std::string_view file_kind_words(FileKind kind) noexcept {
  constexpr std::array<std::string_view, 11> words{
      "IDX array",    "npy array",  "npz arrays", "safetensors tensors",
      "llm.c tokens", "raw tokens", "CIFAR",      "CSV table",
      "JSON lines",   "text",       "unknown"};
  return words[static_cast<std::size_t>(kind)];
}

}  // namespace lockstep
