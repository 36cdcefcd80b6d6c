#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/data/file_datasets.h"
#include "lockstep/formats/csv_file.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

std::uint64_t target_column(const CsvFile& table, const std::string& target) {
  if (table.num_columns() < 2) {
    throw UsageError(fmt::format("{} has {} columns; inputs and a target require two or more",
                                 table.file().name(), table.num_columns()));
  }
  if (target.empty()) return table.num_columns() - 1;
  const auto named = std::ranges::find(table.names(), target);
  if (named != table.names().end()) {
    return static_cast<std::uint64_t>(named - table.names().begin());
  }
  std::uint64_t number = 0;
  const char* end = target.data() + target.size();
  const auto [stopped, error] = std::from_chars(target.data(), end, number);
  if (error != std::errc{} || stopped != end || number < 1 || number > table.num_columns()) {
    throw UsageError(fmt::format("{} has no column {}; give a name, or a number from 1 to {}",
                                 table.file().name(), in_quotes(target), table.num_columns()));
  }
  return number - 1;
}

// The target's values as numbers, and whether all are integers. Class names are numbered.
struct Targets {
  std::vector<double> values;
  bool whole = true;
};

Targets understand(const CsvFile& table, const std::vector<std::string>& texts) {
  Targets targets;
  for (const auto& text : texts) {
    const auto number = try_number(text);
    if (!number) break;
    targets.values.push_back(*number);
    targets.whole = targets.whole && std::floor(*number) == *number && std::abs(*number) < 0x1p53;
  }
  if (targets.values.size() == texts.size()) return targets;
  if (!targets.values.empty()) {
    throw UsageError(fmt::format(
        "{}, row {}: the target {} is not a number, but earlier targets are", table.file().name(),
        targets.values.size(), in_quotes(texts[targets.values.size()])));
  }
  std::map<std::string, double> classes;
  for (const auto& text : texts) classes.emplace(text, 0);
  double next = 0;
  for (auto& [name, number] : classes) number = next++;
  for (const auto& text : texts) targets.values.push_back(classes.at(text));
  return targets;
}

}  // namespace

std::unique_ptr<Dataset> csv_dataset(const std::string& file, const CsvDatasetOptions& options) {
  const CsvFile table(FileBytes::map(file), {.delimiter = options.delimiter});
  const auto column = target_column(table, options.target);
  const auto rows = static_cast<std::int64_t>(table.num_rows());
  const auto columns = static_cast<std::int64_t>(table.num_columns());
  auto input = at::empty({rows, columns - 1}, at::kFloat);
  auto* out = input.mutable_data_ptr<float>();
  std::vector<std::string> texts;
  for (std::uint64_t row = 0; row < table.num_rows(); ++row) {
    const auto fields = table.fields(row);
    for (std::uint64_t i = 0; i < fields.size(); ++i) {
      if (i == column) continue;
      const auto number = try_number(fields[i]);
      if (!number) {
        throw UsageError(fmt::format("{}, row {}: expected a number in {}, found {}", file, row,
                                     table.column_words(i), in_quotes(fields[i])));
      }
      *out++ = static_cast<float>(*number);
    }
    texts.push_back(fields[column]);
  }
  const auto targets = understand(table, texts);
  auto target = at::empty({rows}, targets.whole ? at::kLong : at::kFloat);
  for (std::size_t i = 0; i < targets.values.size(); ++i) {
    if (targets.whole) {
      target.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(targets.values[i]);
    } else {
      target.mutable_data_ptr<float>()[i] = static_cast<float>(targets.values[i]);
    }
  }
  const std::array ids{table.file().data_id(), column};
  return std::make_unique<TensorDataset>(
      std::vector<TensorField>{{.name = "input", .tensor = input},
                               {.name = "target", .tensor = target}},
      TensorDatasetOptions{.name = file, .id = digest(std::as_bytes(std::span(ids)))});
}

}  // namespace lockstep
