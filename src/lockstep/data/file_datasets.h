// Data sets from files, using the readers of room formats. Files of fixed-size samples become
// tensors over their mapped bytes; token files become windows. Text and JSON lines must first be
// converted to token files (`lockstep data tokenize`).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/token_windows.h"
#include "lockstep/formats/element_type.h"
#include "lockstep/formats/token_file.h"

namespace lockstep {

/// The tokens of a file, as a view of the mapping.
[[nodiscard]] Tokens tokens_in_file(const TokenFile& file);

/// A tensor over the array's bytes, without a copy; a copy if the bytes are not aligned. `owner`
/// keeps the bytes alive, usually the file's reader. Do not modify the contents.
[[nodiscard]] at::Tensor tensor_over(const Array& array, std::shared_ptr<const void> owner);

/// Images and labels of IDX files, plain or gzip: "input" uint8 [1, height, width] (float when
/// normalized), "target" int64. Throws UsageError if the shapes or counts do not match.
[[nodiscard]] std::unique_ptr<Dataset> idx_dataset(const std::string& images,
                                                   const std::string& labels,
                                                   std::optional<Normalization> normalization = {});

/// The images of CIFAR files, concatenated: "input" uint8 [3, 32, 32] (float when normalized),
/// "target" int64. The pixels are copied to memory, because in the file labels lie between them.
/// Throws UsageError if the files are not of one kind.
[[nodiscard]] std::unique_ptr<Dataset> cifar_dataset(
    const std::vector<std::string>& files, std::optional<Normalization> normalization = {});

/// The arrays of an .npz, .safetensors or .npy file, one per field, with the arrays' names. An .npy
/// file is one field, "input". `names` selects arrays and their order; empty: all of them.
/// Throws UsageError for other files, an unknown name, and arrays of different lengths.
[[nodiscard]] std::unique_ptr<Dataset> array_dataset(const std::string& file,
                                                     const std::vector<std::string>& names = {});

struct CsvDatasetOptions {
  std::string target{};  // the column's name, or its number, counted from 1; empty: the last column
  char delimiter = ',';
};

/// A table of numbers, read into memory: "input" float [columns - 1] and "target". The target is
/// int64 if all values of its column are integers, or if the column holds class names, which are
/// numbered in alphabetical order; otherwise it is float. Throws UsageError with row and column for
/// a value that is not a number.
[[nodiscard]] std::unique_ptr<Dataset> csv_dataset(const std::string& file,
                                                   const CsvDatasetOptions& options = {});

struct OpenOptions {
  TokenWindowsOptions windows{};
  std::optional<Normalization> normalization{};  // for images
  CsvDatasetOptions csv{};
  bool tokens_of_4_bytes = false;  // for raw token files, which do not store it
};

/// Opens one of the above, chosen by the files' contents: an image and a label file of IDX, CIFAR
/// files, or one file of any other kind. Throws UsageError that states what was found.
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const std::vector<std::string>& files,
                                                    const OpenOptions& options = {});

}  // namespace lockstep
