#include "cli/data/file_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/formats/cifar_file.h"
#include "lockstep/formats/csv_file.h"
#include "lockstep/formats/idx_file.h"
#include "lockstep/formats/jsonl_file.h"
#include "lockstep/formats/npz_file.h"
#include "lockstep/formats/safetensors_file.h"
#include "lockstep/formats/token_file.h"

namespace lockstep::cli {
namespace {

using Lines = std::vector<std::string>;
using Counts = std::map<std::int64_t, std::uint64_t>;

template <typename Number>
double value_at(std::span<const std::byte> bytes, std::uint64_t index) {
  Number value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return static_cast<double>(value);
}

std::string number_at(const Array& array, std::uint64_t index) {
  switch (array.type) {
    case ElementType::boolean:
    case ElementType::u8:
      return fmt::format("{}", value_at<std::uint8_t>(array.bytes, index));
    case ElementType::i8:
      return fmt::format("{}", value_at<std::int8_t>(array.bytes, index));
    case ElementType::u16:
      return fmt::format("{}", value_at<std::uint16_t>(array.bytes, index));
    case ElementType::i16:
      return fmt::format("{}", value_at<std::int16_t>(array.bytes, index));
    case ElementType::u32:
      return fmt::format("{}", value_at<std::uint32_t>(array.bytes, index));
    case ElementType::i32:
      return fmt::format("{}", value_at<std::int32_t>(array.bytes, index));
    case ElementType::u64:
      return fmt::format("{}", value_at<std::uint64_t>(array.bytes, index));
    case ElementType::i64:
      return fmt::format("{}", value_at<std::int64_t>(array.bytes, index));
    case ElementType::f32:
      return fmt::format("{:.6g}", value_at<float>(array.bytes, index));
    case ElementType::f64:
      return fmt::format("{:.6g}", value_at<double>(array.bytes, index));
    case ElementType::f16:
    case ElementType::bf16:
      return fmt::format("0x{:04x}",
                         static_cast<unsigned>(value_at<std::uint16_t>(array.bytes, index)));
  }
  return "";
}

void add_classes(Lines& lines, const Counts& counts) {
  Lines words;
  for (const auto& [label, count] : counts) words.push_back(fmt::format("{}: {}", label, count));
  lines.push_back(fmt::format("classes   {} ({})", counts.size(), fmt::join(words, ", ")));
}

// Bytes are class labels if they have at most a hundred different values.
void add_array(Lines& lines, const std::string& name, const Array& array,
               std::uint64_t num_samples) {
  lines.push_back(fmt::format("{}{}", name, array_words(array.type, array.shape)));
  const auto rows = array.shape.empty() ? 1 : array.shape.front();
  const auto values = array.bytes.size() / element_type_bytes(array.type);
  const auto in_row = rows == 0 ? 0 : values / rows;
  if (array.type == ElementType::u8 && array.shape.size() == 1) {
    Counts counts;
    for (const auto label : array.bytes) ++counts[std::to_integer<std::int64_t>(label)];
    if (counts.size() <= 100) add_classes(lines, counts);
  }
  for (std::uint64_t row = 0; row < std::min(rows, num_samples) && in_row > 0; ++row) {
    constexpr std::uint64_t most = 12;
    Lines numbers;
    for (std::uint64_t i = 0; i < std::min(in_row, most); ++i) {
      numbers.push_back(number_at(array, row * in_row + i));
    }
    lines.push_back(
        fmt::format("sample {}  {}{}", row, fmt::join(numbers, " "), in_row > most ? " …" : ""));
  }
}

Lines token_lines(const FileBytes& file, const ReportOptions& options, FileKind kind) {
  const TokenFile tokens(file, kind == FileKind::llmc_tokens ? TokenLayout::llmc
                               : options.tokens_of_4_bytes   ? TokenLayout::raw_uint32
                                                             : TokenLayout::raw_uint16);
  constexpr std::uint64_t most = 16;
  std::vector<std::int64_t> first(std::min(tokens.num_tokens(), most));
  tokens.read(0, first);
  Lines lines{std::string(token_layout_words(tokens.layout(), tokens.token_bytes())),
              fmt::format("tokens    {}", tokens.num_tokens()),
              fmt::format("first     {}", fmt::join(first, " "))};
  if (options.tokenizer != nullptr) {
    const std::vector<Token> numbers(first.begin(), first.end());
    lines.push_back(fmt::format("as text   {}", in_quotes(options.tokenizer->decode(numbers))));
  }
  if (kind == FileKind::raw_tokens) {
    lines.emplace_back(
        options.tokens_of_4_bytes
            ? "(read as uint32, as requested: a raw file does not contain its width)"
            : "(read as uint16: a raw file does not contain its width; --as uint32 changes it)");
  }
  return lines;
}

Lines cifar_lines(const FileBytes& file, std::uint64_t num_samples) {
  const CifarFile images(file);
  Lines lines{fmt::format("CIFAR-{} images, uint8[{}, 3, 32, 32]", images.num_classes(),
                          images.num_images())};
  Counts counts;
  for (std::uint64_t i = 0; i < images.num_images(); ++i) ++counts[images.label(i)];
  add_classes(lines, counts);
  for (std::uint64_t i = 0; i < std::min(images.num_images(), num_samples); ++i) {
    lines.push_back(fmt::format("sample {}  label {}", i, images.label(i)));
  }
  return lines;
}

Lines csv_lines(const FileBytes& file, std::uint64_t num_samples) {
  const bool tabs = file.name().ends_with(".tsv");
  const CsvFile table(file, {.delimiter = tabs ? '\t' : ','});
  Lines lines{
      fmt::format("CSV table, {} rows of {} columns", table.num_rows(), table.num_columns())};
  Lines names;
  for (const auto& name : table.names()) names.push_back(in_quotes(name));
  if (!names.empty()) lines.push_back(fmt::format("columns   {}", fmt::join(names, ", ")));
  for (std::uint64_t row = 0; row < std::min(table.num_rows(), num_samples); ++row) {
    Lines fields;
    for (const auto& field : table.fields(row)) fields.push_back(in_quotes(field));
    lines.push_back(fmt::format("row {}     {}", row, fmt::join(fields, ", ")));
  }
  return lines;
}

struct Lengths {
  std::uint64_t shortest = ~std::uint64_t{0};
  std::uint64_t longest = 0;
  std::uint64_t total = 0;

  void add(std::uint64_t length) {
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
    total += length;
  }
};

template <typename Documents>
Lines document_lines(std::string_view what, const Documents& documents, std::uint64_t num_samples) {
  Lengths lengths;
  Lines first;
  const auto count = documents.num_documents();
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto& text = documents.document(i);
    lengths.add(text.size());
    if (i < num_samples) first.push_back(fmt::format("sample {}  {}", i, in_quotes(text)));
  }
  Lines lines{fmt::format("{}, {} documents", what, count)};
  if (count > 0) {
    lines.push_back(fmt::format("lengths   {} to {} bytes, mean {}", lengths.shortest,
                                lengths.longest, lengths.total / count));
  }
  lines.insert(lines.end(), first.begin(), first.end());
  return lines;
}

Lines lines_of(const FileBytes& file, const ReportOptions& options, FileKind kind) {
  Lines lines;
  switch (kind) {
    case FileKind::idx:
      lines.emplace_back("IDX");
      add_array(lines, "array     ", IdxFile(file).array(), options.num_samples);
      return lines;
    case FileKind::npy:
      lines.emplace_back("npy");
      add_array(lines, "array     ", NpyFile(file).array(), options.num_samples);
      return lines;
    case FileKind::npz: {
      const NpzFile arrays(file);
      lines.push_back(fmt::format("npz, {} arrays", arrays.names().size()));
      for (const auto& name : arrays.names()) {
        add_array(lines, in_quotes(name) + "  ", arrays.array(name).array(), 1);
      }
      return lines;
    }
    case FileKind::safetensors: {
      const SafetensorsFile tensors(file);
      lines.push_back(fmt::format("safetensors, {} tensors", tensors.names().size()));
      for (const auto& entry : tensors.header().entries) {
        lines.push_back(fmt::format("{}  {}[{}]", in_quotes(entry.name),
                                    safetensors_dtype_name(entry.dtype),
                                    fmt::join(entry.shape, ", ")));
      }
      return lines;
    }
    case FileKind::llmc_tokens:
    case FileKind::raw_tokens:
      return token_lines(file, options, kind);
    case FileKind::cifar:
      return cifar_lines(file, options.num_samples);
    case FileKind::csv:
      return csv_lines(file, options.num_samples);
    case FileKind::jsonl:
      return document_lines("JSON lines", JsonlFile(file), options.num_samples);
    case FileKind::text:
      return document_lines("text, one document per line",
                            TextFile(file, {.documents = DocumentBreak::line}),
                            options.num_samples);
    case FileKind::unknown:
      break;
  }
  throw UsageError(fmt::format(
      "the format of {} is not known from its first bytes ({}) or its name: name it with --as",
      file.name(), in_quotes(file.text().substr(0, 8))));
}

}  // namespace

std::string file_report(const FileBytes& file, const ReportOptions& options) {
  const auto kind = options.kind == FileKind::unknown ? identify(file) : options.kind;
  auto lines = lines_of(file, options, kind);
  lines.push_back(fmt::format("data id   {:016x}", file.data_id()));
  lines.front() = fmt::format("{}: {} ({} bytes)", file.name(), lines.front(), file.size());
  return fmt::format("{}\n", fmt::join(lines, "\n  "));
}

}  // namespace lockstep::cli
