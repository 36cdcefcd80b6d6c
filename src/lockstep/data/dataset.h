// A data set: samples with numbers, read a batch at a time. A call for every sample costs more than
// the sample where samples are small, so the interface is `read(indices, rows)`, and readers write
// into memory that is there before they start (rows.h). A data set does not shuffle, split or
// batch: the sampler says which samples, the loader when.
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

  /// The number of samples; it never changes.
  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// What each sample looks like. A data set for language models has fields "input" and "target",
  /// both int64 [window]; one for classification "input" and a scalar int64 "target".
  [[nodiscard]] virtual const SampleLayout& layout() const = 0;

  /// Writes sample indices[i] into row i of every field, every byte of it.
  /// `rows.count()` is indices.size(); each index is in [0, size()); an index may come twice.
  /// Called by several threads at once, and for one sample alone after a call has thrown, to learn
  /// which sample it was. Throws UsageError for data that is not as it should be, naming file and
  /// offset, and SystemError when the machine cannot read it; the loader adds the sample's number.
  virtual void read(std::span<const std::int64_t> indices, const Rows& rows) const = 0;

  /// Stands for the data in a checkpoint: the same data has the same id on every machine and in
  /// every run, other data another one. A digest (kernels/digest.h) of header and sizes will do, of
  /// the contents is better.
  [[nodiscard]] virtual std::uint64_t id() const = 0;

  /// Where the data is from, for messages: a path, or a few words.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace lockstep
