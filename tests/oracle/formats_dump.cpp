// Prints the contents of each file as lockstep reads them, for formats_agreement.py to compare:
// `file PATH KIND`, then one line per array (`array NAME TYPE SIZES HEX`), document (`document
// HEX`), row (`row HEX HEX ...`) or image (`image LABEL HEX`), or `reject: MESSAGE`.
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/formats/cifar_file.h"
#include "lockstep/formats/csv_file.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/idx_file.h"
#include "lockstep/formats/jsonl_file.h"
#include "lockstep/formats/npz_file.h"
#include "lockstep/formats/safetensors_file.h"
#include "lockstep/formats/token_file.h"

namespace {

using namespace lockstep;  // NOLINT: one small program about one library

std::string hex_of(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text = "x";  // so that empty text is a word too
  for (const auto byte : bytes) {
    const auto value = std::to_integer<unsigned>(byte);
    text += {digits[value >> 4], digits[value & 15]};
  }
  return text;
}
std::string hex_of(std::string_view text) { return hex_of(std::as_bytes(std::span(text))); }

void print_array(std::string_view name, const Array& array) {
  std::string sizes;
  for (const auto size : array.shape) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  std::printf("array %s %s %s %s\n", hex_of(name).c_str(),
              std::string(element_type_name(array.type)).c_str(),
              sizes.empty() ? "-" : sizes.c_str(), hex_of(array.bytes).c_str());
}

void print_tokens(const TokenFile& file) {
  std::vector<std::int64_t> tokens(file.num_tokens());
  file.read(0, tokens);
  print_array("", {ElementType::i64, {tokens.size()}, std::as_bytes(std::span(tokens))});
}

void print_csv(const CsvFile& table) {
  for (std::uint64_t row = 0; row < table.num_rows(); ++row) {
    std::printf("row");
    for (const auto& field : table.fields(row)) std::printf(" %s", hex_of(field).c_str());
    std::printf("\n");
  }
}

void print_contents(const FileBytes& file, FileKind kind) {
  switch (kind) {
    case FileKind::idx:
      return print_array("", IdxFile(file).array());
    case FileKind::npy:
      return print_array("", NpyFile(file).array());
    case FileKind::npz: {
      const NpzFile arrays(file);
      for (const auto& name : arrays.names()) print_array(name, arrays.array(name).array());
      return;
    }
    case FileKind::safetensors: {
      const SafetensorsFile tensors(file);
      for (const auto& name : tensors.names()) print_array(name, tensors.array(name));
      return;
    }
    case FileKind::llmc_tokens:
    case FileKind::raw_tokens:
      return print_tokens(TokenFile(
          file, file.name().ends_with(".u32") ? TokenLayout::raw_uint32 : TokenLayout::detect));
    case FileKind::cifar: {
      const CifarFile images(file);
      for (std::uint64_t i = 0; i < images.num_images(); ++i) {
        std::printf("image %d %s\n", images.label(i), hex_of(images.pixels(i)).c_str());
      }
      return;
    }
    case FileKind::csv:
      return print_csv(CsvFile(file, {.header = CsvHeader::none}));
    case FileKind::jsonl: {
      const JsonlFile lines(file);
      for (std::uint64_t i = 0; i < lines.num_documents(); ++i) {
        std::printf("document %s\n", hex_of(lines.document(i)).c_str());
      }
      return;
    }
    case FileKind::text: {
      const TextFile lines(file, {.documents = DocumentBreak::line});
      for (std::uint64_t i = 0; i < lines.num_documents(); ++i) {
        std::printf("document %s\n", hex_of(lines.document(i)).c_str());
      }
      return;
    }
    case FileKind::unknown:
      return;
  }
}

}  // namespace

int main(int num_arguments, char** arguments) {
  for (int i = 1; i < num_arguments; ++i) {
    const auto file = FileBytes::map(arguments[i]);
    const auto kind = identify(file);
    std::printf("file %s %s\n", arguments[i], std::string(file_kind_words(kind)).c_str());
    try {
      print_contents(file, kind);
    } catch (const UsageError& error) {
      std::printf("reject: %s\n", error.what());
    }
  }
  return 0;
}
