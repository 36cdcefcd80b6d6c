#include "lockstep/data/file_datasets.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/formats/cifar_file.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/idx_file.h"
#include "lockstep/formats/npz_file.h"
#include "lockstep/formats/safetensors_file.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

at::ScalarType scalar_type(ElementType type) {
  constexpr std::array<at::ScalarType, 13> types{
      at::kBool,   at::kByte, at::kChar, at::kUInt16,   at::kShort, at::kUInt32, at::kInt,
      at::kUInt64, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  return types[static_cast<std::size_t>(type)];
}

std::vector<std::int64_t> sizes_of(const Array& array) {
  return {array.shape.begin(), array.shape.end()};
}

template <typename Reader>
at::Tensor tensor_of(Reader reader) {
  auto owner = std::make_shared<const Reader>(std::move(reader));
  return tensor_over(owner->array(), owner);
}

std::uint64_t id_of(std::span<const std::uint64_t> ids) { return digest(std::as_bytes(ids)); }

}  // namespace

Tokens tokens_in_file(const TokenFile& file) {
  auto owner = std::make_shared<const TokenFile>(file);
  const auto* data = owner->token_data().data();
  const auto count = owner->num_tokens();
  Tokens tokens{.values = std::span(reinterpret_cast<const std::uint16_t*>(data), count),
                .owner = owner,
                .id = file.file().data_id(),
                .name = file.file().name()};
  if (file.token_bytes() == 4) {
    tokens.values = std::span(reinterpret_cast<const std::uint32_t*>(data), count);
  }
  return tokens;
}

at::Tensor tensor_over(const Array& array, std::shared_ptr<const void> owner) {
  const auto options = at::TensorOptions().dtype(scalar_type(array.type));
  const auto sizes = sizes_of(array);
  const auto address = reinterpret_cast<std::uintptr_t>(array.bytes.data());
  if (array.bytes.empty() || address % element_type_bytes(array.type) != 0) {
    auto copy = at::empty(sizes, options);
    if (!array.bytes.empty()) {
      std::memcpy(copy.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
    }
    return copy;
  }
  // from_blob has no const overload; nothing writes to a data set's tensors.
  return at::from_blob(
      const_cast<std::byte*>(array.bytes.data()), sizes, [owner](void* /*bytes*/) {}, options);
}

std::unique_ptr<Dataset> idx_dataset(const std::string& images, const std::string& labels,
                                     std::optional<Normalization> normalization) {
  const auto image_file = FileBytes::map(images);
  const auto label_file = FileBytes::map(labels);
  auto input = tensor_of(IdxFile(image_file));
  auto target = tensor_of(IdxFile(label_file));
  if (input.dim() != 3 || target.dim() != 1 || input.size(0) != target.size(0) ||
      target.scalar_type() != at::kByte) {
    throw UsageError(fmt::format(
        "expected {} to hold images [n, height, width] and {} as many labels uint8 [n], found {} "
        "and {}",
        images, labels,
        array_words(IdxFile(image_file).array().type, IdxFile(image_file).array().shape),
        array_words(IdxFile(label_file).array().type, IdxFile(label_file).array().shape)));
  }
  const std::array ids{image_file.data_id(), label_file.data_id()};
  return std::make_unique<TensorDataset>(
      std::vector<TensorField>{{.name = "input",
                                .tensor = input.unsqueeze(1),
                                .normalization = std::move(normalization)},
                               {.name = "target", .tensor = target.to(at::kLong)}},
      TensorDatasetOptions{.name = images, .id = id_of(ids)});
}

std::unique_ptr<Dataset> cifar_dataset(const std::vector<std::string>& files,
                                       std::optional<Normalization> normalization) {
  std::vector<CifarFile> readers;
  std::vector<std::uint64_t> ids;
  std::int64_t count = 0;
  for (const auto& path : files) {
    readers.emplace_back(FileBytes::map(path));
    ids.push_back(readers.back().file().data_id());
    count += static_cast<std::int64_t>(readers.back().num_images());
    if (readers.back().kind() != readers.front().kind()) {
      throw UsageError(fmt::format("{} is CIFAR-{}, but {} is CIFAR-{}; use files of one kind",
                                   path, readers.back().num_classes(), files.front(),
                                   readers.front().num_classes()));
    }
  }
  auto input = at::empty({count, 3, 32, 32}, at::kByte);
  auto target = at::empty({count}, at::kLong);
  auto* pixels = input.mutable_data_ptr<std::uint8_t>();
  auto* labels = target.mutable_data_ptr<std::int64_t>();
  for (const auto& reader : readers) {
    for (std::uint64_t i = 0; i < reader.num_images(); ++i) {
      std::memcpy(pixels, reader.pixels(i).data(), CifarFile::kPixelBytes);
      pixels += CifarFile::kPixelBytes;
      *labels++ = reader.label(i);
    }
  }
  return std::make_unique<TensorDataset>(
      std::vector<TensorField>{
          {.name = "input", .tensor = input, .normalization = std::move(normalization)},
          {.name = "target", .tensor = target}},
      TensorDatasetOptions{.name = files.empty() ? "no files" : files.front(), .id = id_of(ids)});
}

std::unique_ptr<Dataset> array_dataset(const std::string& file,
                                       const std::vector<std::string>& names) {
  const auto bytes = FileBytes::map(file);
  std::vector<TensorField> fields;
  const auto add = [&](const auto& all, auto&& tensor) {
    for (const auto& name : names.empty() ? all : names) {
      fields.push_back({.name = name, .tensor = tensor(name)});
    }
  };
  switch (identify(bytes)) {
    case FileKind::npy:
      fields.push_back({.name = "input", .tensor = tensor_of(NpyFile(bytes))});
      break;
    case FileKind::npz: {
      const NpzFile arrays(bytes);
      add(arrays.names(), [&](const auto& name) { return tensor_of(arrays.array(name)); });
      break;
    }
    case FileKind::safetensors: {
      const auto tensors = std::make_shared<const SafetensorsFile>(bytes);
      add(tensors->names(),
          [&](const auto& name) { return tensor_over(tensors->array(name), tensors); });
      break;
    }
    default:
      throw UsageError(fmt::format("expected {} to be an npy, npz or safetensors file, found {}",
                                   file, file_kind_words(identify(bytes))));
  }
  return std::make_unique<TensorDataset>(std::move(fields),
                                         TensorDatasetOptions{.name = file, .id = bytes.data_id()});
}

std::unique_ptr<Dataset> open_dataset(const std::vector<std::string>& files,
                                      const OpenOptions& options) {
  if (files.empty()) throw UsageError("no data file is given; give one or more paths");
  const auto first = FileBytes::map(files.front());
  const auto kind = identify(first);
  if (kind == FileKind::cifar) return cifar_dataset(files, options.normalization);
  if (kind == FileKind::idx && files.size() == 2) {
    // In either order: images have three dimensions, labels one.
    const bool swapped = IdxFile(first).array().shape.size() == 1;
    return idx_dataset(files[swapped ? 1 : 0], files[swapped ? 0 : 1], options.normalization);
  }
  if (files.size() > 1) {
    throw UsageError(fmt::format(
        "{} files are given, the first is {}: only CIFAR files, or one image and one label file of "
        "IDX, can be combined into one data set",
        files.size(), file_kind_words(kind)));
  }
  switch (kind) {
    case FileKind::llmc_tokens:
    case FileKind::raw_tokens: {
      const auto layout = kind == FileKind::llmc_tokens ? TokenLayout::llmc
                          : options.tokens_of_4_bytes   ? TokenLayout::raw_uint32
                                                        : TokenLayout::raw_uint16;
      return std::make_unique<TokenWindows>(tokens_in_file(TokenFile(first, layout)),
                                            options.windows);
    }
    case FileKind::npy:
    case FileKind::npz:
    case FileKind::safetensors:
      return array_dataset(files.front());
    case FileKind::csv:
      return csv_dataset(files.front(), options.csv);
    case FileKind::jsonl:
    case FileKind::text:
      throw UsageError(fmt::format(
          "{} is {}; convert it to tokens first: lockstep data tokenize {} -o tokens.bin",
          files.front(), file_kind_words(kind), files.front()));
    default:
      throw UsageError(fmt::format("{} is not a data set: {}", files.front(),
                                   kind == FileKind::idx
                                       ? "it is one IDX file; give an image file and a label file"
                                       : "its kind is unknown"));
  }
}

}  // namespace lockstep
