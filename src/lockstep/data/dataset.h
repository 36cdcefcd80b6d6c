// A map-style data set: samples with indices 0 to size() - 1, read one batch at a time.
//
// For small samples a virtual call per sample costs more than the read itself. So one call,
// read(indices, rows), reads many samples, directly into the batch's memory (rows.h). A data set
// does not shuffle, shard or batch: the sampler chooses the samples, the loader calls read().
//
// To read one sample per call, use SampleDataset (sample_dataset.h). For tensors in memory, use
// TensorDataset; for a torch::data data set, TorchData.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "lockstep/data/rows.h"
#include "lockstep/data/sample_layout.h"

namespace lockstep {

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  /// The number of samples. It must never change.
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Name, dtype and shape of each field of a sample. For language models: "input" and "target",
  /// both int64 [window]. For classification: "input" and a scalar int64 "target".
  [[nodiscard]] virtual const SampleLayout& layout() const = 0;

  /// Writes sample indices[i] into row i of every field, and fills the row completely.
  /// `rows.count()` is indices.size(). Each index is in [0, size()). An index may occur twice.
  /// The loader's workers call this concurrently. After a call that throws, the loader calls it
  /// again for each sample alone, to find the sample that failed.
  /// Throws UsageError, naming file and offset, for damaged data, and SystemError if the data is
  /// unreadable. The loader puts the sample's index in front of the message.
  virtual void read(std::span<const std::int64_t> indices, const Rows& rows) const = 0;

  /// Identifies the data in a checkpoint, so that a run cannot resume on different data. Equal data
  /// has the same id on every machine and in every run; different data has a different id. A digest
  /// (kernels/digest.h) of header and sizes is sufficient; a digest of the contents is better.
  [[nodiscard]] virtual std::uint64_t id() const = 0;

  /// The origin of the data, for messages: a path or a short description.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace lockstep
