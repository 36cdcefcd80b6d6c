#include "lockstep/data/tensor_dataset.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/gather_internal.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

SampleLayout layout_of(const std::vector<TensorField>& fields) {
  std::vector<Field> found;
  for (const auto& field : fields) {
    if (!field.tensor.defined() || field.tensor.dim() < 1 || !field.tensor.device().is_cpu()) {
      throw UsageError(fmt::format(
          "field {:?} requires a tensor [samples, shape...] on the CPU, found {}", field.name,
          field.tensor.defined() ? field.tensor.toString() : std::string("undefined")));
    }
    if (field.normalization && field.tensor.scalar_type() != at::kByte) {
      throw UsageError(fmt::format("field {:?} holds {}; Normalization supports only uint8",
                                   field.name, c10::toString(field.tensor.scalar_type())));
    }
    const auto shape = field.tensor.sizes().slice(1);
    found.push_back({field.name,
                     field.normalization ? at::kFloat : field.tensor.scalar_type(),
                     {shape.begin(), shape.end()}});
  }
  return SampleLayout(std::move(found));
}

std::int64_t common_size(const std::vector<TensorField>& fields) {
  const auto size = fields.front().tensor.size(0);
  for (const auto& field : fields) {
    if (field.tensor.size(0) != size) {
      throw UsageError(
          fmt::format("field {:?} has {} samples, field {:?} has {}; they must be equal",
                      fields.front().name, size, field.name, field.tensor.size(0)));
    }
  }
  return size;
}

void check(const Normalization& how, const TensorField& field) {
  const auto channels = field.tensor.dim() > 1 ? field.tensor.size(1) : 1;
  const auto fits = [&](std::size_t count) {
    return count == 1 || static_cast<std::int64_t>(count) == channels;
  };
  if (how.mean.size() != how.stddev.size() || !fits(how.mean.size())) {
    throw UsageError(fmt::format(
        "field {:?} has {} channels, but Normalization has {} means and {} stddevs; give 1 or {} "
        "of each",
        field.name, channels, how.mean.size(), how.stddev.size(), channels));
  }
  for (const auto stddev : how.stddev) {
    if (!(stddev > 0)) {
      throw UsageError(fmt::format("field {:?} has an invalid stddev of {}; use a value above 0",
                                   field.name, stddev));
    }
  }
}

}  // namespace

TensorDataset::TensorDataset(const std::vector<TensorField>& fields, TensorDatasetOptions options)
    : layout_(layout_of(fields)), size_(common_size(fields)), name_(std::move(options.name)) {
  for (const auto& field : fields) sources_.push_back(source_of(field));
  if (options.id) {
    id_ = *options.id;
    return;
  }
  // A digest is a sum over byte offsets: the layout's text comes first, then each tensor at its own
  // offsets.
  const auto words = describe(layout_);
  Digest all;
  std::uint64_t offset = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    all.add(offset, bytes);
    offset += (bytes.size() + 15) / 8 * 8;
  };
  add(std::as_bytes(std::span(words)));
  for (const auto& source : sources_) add(source.bytes);
  id_ = all.value();
}

void TensorDataset::read(std::span<const std::int64_t> indices, const Rows& rows) const {
  for (int field = 0; field < layout_.num_fields(); ++field) {
    const auto& source = sources_[static_cast<std::size_t>(field)];
    const auto& what = layout_.fields()[static_cast<std::size_t>(field)];
    if (source.scale.empty()) {
      gather_rows(source.bytes, row_bytes(what), indices, rows.bytes(field));
    } else {
      gather_scaled(
          {reinterpret_cast<const std::uint8_t*>(source.bytes.data()), source.bytes.size()},
          static_cast<std::size_t>(row_values(what)), indices, source.scale, source.shift,
          rows.values<float>(field));
    }
  }
}

TensorDataset::Source TensorDataset::source_of(const TensorField& field) {
  Source source;
  source.tensor = field.tensor.contiguous();
  source.bytes = {static_cast<const std::byte*>(source.tensor.const_data_ptr()),
                  source.tensor.nbytes()};
  if (field.normalization) {
    check(*field.normalization, field);
    for (std::size_t channel = 0; channel < field.normalization->mean.size(); ++channel) {
      const double stddev = field.normalization->stddev[channel];
      source.scale.push_back(static_cast<float>(1 / (255 * stddev)));
      source.shift.push_back(static_cast<float>(-field.normalization->mean[channel] / stddev));
    }
  }
  return source;
}

}  // namespace lockstep
