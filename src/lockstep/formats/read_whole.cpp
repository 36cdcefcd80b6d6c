#include <algorithm>
#include <array>
#include <vector>

#include "lockstep/base/assert.h"
#include "lockstep/formats/cifar_file.h"
#include "lockstep/formats/csv_file.h"
#include "lockstep/formats/idx_file.h"
#include "lockstep/formats/jsonl_file.h"
#include "lockstep/formats/npz_file.h"
#include "lockstep/formats/read_whole_internal.h"
#include "lockstep/formats/safetensors_file.h"
#include "lockstep/formats/token_file.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::uint64_t sum_of(std::string_view text) { return digest(std::as_bytes(std::span(text))); }

std::uint64_t read_array(const Array& array) {
  const auto wanted = try_array_bytes(array.shape, array.type);
  LOCKSTEP_ASSERT(wanted && *wanted == array.bytes.size(),
                  "shape and type match the number of bytes");
  return digest(array.bytes);
}

std::uint64_t read_tokens(const FileBytes& file, TokenLayout layout) {
  const TokenFile tokens(file, layout);
  std::vector<std::int64_t> all(tokens.num_tokens());
  tokens.read(0, all);
  LOCKSTEP_ASSERT(std::ranges::all_of(all, [](auto t) { return t >= 0 && t >> 32 == 0; }),
                  "a token is an unsigned integer of at most 32 bits");
  return digest(std::as_bytes(std::span(all)));
}

std::uint64_t read_cifar(const FileBytes& file) {
  const CifarFile cifar(file);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < cifar.num_images(); ++i) {
    LOCKSTEP_ASSERT(cifar.label(i) >= 0 && cifar.label(i) < cifar.num_classes(),
                    "labels are in range");
    sum += digest(cifar.pixels(i)) + static_cast<std::uint64_t>(cifar.label(i));
  }
  return sum;
}

std::uint64_t read_npz(const FileBytes& file) {
  const NpzFile arrays(file);
  std::uint64_t sum = 0;
  for (const auto& name : arrays.names()) sum += read_array(arrays.array(name).array());
  return sum;
}

std::uint64_t read_csv(const FileBytes& file) {
  const CsvFile table(file);
  std::uint64_t sum = 0;
  for (std::uint64_t row = 0; row < table.num_rows(); ++row) {
    const auto fields = table.fields(row);
    LOCKSTEP_ASSERT(fields.size() == table.num_columns(),
                    "all rows have the same number of fields");
    for (const auto& field : fields) sum += sum_of(field);
  }
  return sum;
}

std::uint64_t read_text(const FileBytes& file) {
  std::uint64_t sum = 0;
  for (const auto documents : {DocumentBreak::whole_file, DocumentBreak::line,
                               DocumentBreak::blank_line, DocumentBreak::marker}) {
    const TextFile text(file, {.documents = documents});
    for (std::uint64_t i = 0; i < text.num_documents(); ++i) {
      LOCKSTEP_ASSERT(!text.document(i).empty(), "documents are not empty");
      sum += sum_of(text.document(i));
    }
  }
  return sum;
}

std::uint64_t read_jsonl(const FileBytes& file) {
  const JsonlFile lines(file);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < lines.num_documents(); ++i) sum += sum_of(lines.document(i));
  return sum;
}

std::uint64_t read_safetensors(const FileBytes& file) {
  const SafetensorsFile tensors(file);
  std::uint64_t sum = 0;
  for (const auto& name : tensors.names()) sum += read_array(tensors.array(name));
  return sum;
}

}  // namespace

std::uint64_t read_whole(Reader reader, const FileBytes& file) {
  switch (reader) {
    case Reader::tokens16:
      return read_tokens(file, TokenLayout::raw_uint16);
    case Reader::tokens32:
      return read_tokens(file, TokenLayout::raw_uint32);
    case Reader::llmc:
      return read_tokens(file, TokenLayout::llmc);
    case Reader::idx:
      return read_array(IdxFile(file).array());
    case Reader::cifar:
      return read_cifar(file);
    case Reader::npy:
      return read_array(NpyFile(file).array());
    case Reader::npz:
      return read_npz(file);
    case Reader::csv:
      return read_csv(file);
    case Reader::text:
      return read_text(file);
    case Reader::jsonl:
      return read_jsonl(file);
    case Reader::safetensors:
      return read_safetensors(file);
  }
  return 0;
}

}  // namespace lockstep
