// Data sets from files: the readers of room formats, as samples with fields. Files of fixed-size
// samples become tensors over their mapped bytes, files of tokens become windows. Text and JSON
// lines are made into token files first (`lockstep data tokenize`).
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

/// The tokens of a file, where they are mapped.
[[nodiscard]] Tokens tokens_in_file(const TokenFile& file);

/// A tensor over the array's bytes where they lie, or a copy of them when they are not aligned.
/// `owner` keeps the bytes alive: a reader, usually. Leave the contents alone.
[[nodiscard]] at::Tensor tensor_over(const Array& array, std::shared_ptr<const void> owner);

/// Images and labels of IDX files, plain or gzip: "input" uint8 [1, height, width] (float when
/// normalized), "target" int64. Throws UsageError when shapes are others or the counts differ.
[[nodiscard]] std::unique_ptr<Dataset> idx_dataset(const std::string& images,
                                                   const std::string& labels,
                                                   std::optional<Normalization> normalization = {});

/// The images of CIFAR files, one after the other: "input" uint8 [3, 32, 32] (float when
/// normalized), "target" int64. The pixels are copied to memory: in the file labels lie between.
[[nodiscard]] std::unique_ptr<Dataset> cifar_dataset(const std::vector<std::string>& files,
                                                     std::optional<Normalization> normalization = {});

/// Arrays of an .npz, .safetensors or .npy file, one a field; the fields have the arrays' names.
/// An .npy file is one field, "input". `names` picks arrays and their order; empty: all of them.
[[nodiscard]] std::unique_ptr<Dataset> array_dataset(const std::string& file,
                                                     const std::vector<std::string>& names = {});

struct CsvDatasetOptions {
  std::string target{};  // the column's name, or its number from 1 on; empty: the last
  char delimiter = ',';
};

/// A table of numbers: "input" float [columns - 1], and "target": int64 when all values of its
/// column are whole numbers or none is a number (then they are classes, numbered in the order of
/// their names), else float. Read into memory. Throws UsageError with line and column.
[[nodiscard]] std::unique_ptr<Dataset> csv_dataset(const std::string& file,
                                                   const CsvDatasetOptions& options = {});

struct OpenOptions {
  TokenWindowsOptions windows{};
  std::optional<Normalization> normalization{};  // for images
  CsvDatasetOptions csv{};
  bool tokens_of_4_bytes = false;  // raw token files do not say
};

/// One of the above, by what the files are: an image and a label file of IDX, CIFAR files, or one
/// file of any other kind. Throws UsageError that says what was found.
[[nodiscard]] std::unique_ptr<Dataset> open_dataset(const std::vector<std::string>& files,
                                                    const OpenOptions& options = {});

}  // namespace lockstep
