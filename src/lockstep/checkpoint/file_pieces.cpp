#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/checkpoint/file_pieces_internal.h"
#include "lockstep/checkpoint/safetensors_layout.h"
#include "lockstep/checkpoint/tensor_entry_internal.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kPage = 4096;

// Entries of tensors, then of_rank_0, then sharded.
SafetensorsLayout layout_of(const FileToStage& file) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : file.tensors) entries.push_back(entry_of(name, tensor));
  for (const auto& [name, tensor] : file.of_rank_0) entries.push_back(entry_of(name, tensor));
  for (const auto& each : file.sharded)
    entries.push_back(entry_of(each.name, each.dtype, each.sizes));
  return lay_out_safetensors(entries);
}

[[noreturn]] void refuse(const ShardedTensor& tensor, std::string_view fault) {
  throw UsageError(fmt::format("sharded_tensors() has an invalid piece of {}: {}",
                               in_quotes(tensor.name), fault));
}

class Collector {
 public:
  explicit Collector(const FileToStage& file) : file_(file), layout_(layout_of(file)) {
    for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
      if (layout_.sources[i] < file_.tensors.size()) equal_bytes_ += bytes_of(i);
    }
  }

  FilePieces collect() && {
    const auto num_equal = file_.tensors.size();
    const auto num_whole = num_equal + file_.of_rank_0.size();
    for (std::size_t i = 0; i < layout_.entries.size(); ++i) {
      const auto source = layout_.sources[i];
      if (source < num_equal) {
        add_equal(file_.tensors[source].second, i);
      } else if (source >= num_whole) {
        add_sharded(file_.sharded[source - num_whole], i);
      } else if (file_.rank == 0) {
        const auto& tensor = file_.of_rank_0[source - num_equal].second;
        add(tensor, i, 0, tensor.numel());
      }
    }
    result_.file_bytes = layout_.head.size() + layout_.data_bytes;
    if (file_.rank == 0) result_.head = std::move(layout_.head);
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::uint64_t bytes_of(std::size_t entry) const {
    return layout_.entries[entry].end - layout_.entries[entry].begin;
  }
  [[nodiscard]] std::uint64_t position_of(std::size_t entry) const {
    return layout_.head.size() + layout_.entries[entry].begin;
  }

  void add(const at::Tensor& tensor, std::size_t entry, std::int64_t begin, std::int64_t count,
           std::int64_t first = 0) {
    if (count == 0) return;
    const auto skipped = static_cast<std::uint64_t>(begin + first) * tensor.element_size();
    result_.pieces.push_back({position_of(entry) + skipped, tensor, begin, count});
  }

  // The element of `entry` at which the stretch of `rank` begins: all bytes of equal tensors, in
  // the order of the file, are divided. A multiple of 8 in the file is always between two elements,
  // because wider dtypes come first.
  [[nodiscard]] std::int64_t cut(std::size_t entry, int rank, std::uint64_t element_bytes) const {
    const auto ranks = static_cast<std::uint64_t>(file_.num_ranks);
    const auto target = static_cast<std::uint64_t>(rank) * (equal_bytes_ / ranks);
    const auto begin = position_of(entry);
    if (rank == file_.num_ranks || target >= passed_ + bytes_of(entry)) {
      return static_cast<std::int64_t>(bytes_of(entry) / element_bytes);
    }
    if (target <= passed_) return 0;
    const auto position = (begin + (target - passed_)) / kPage * kPage;
    return static_cast<std::int64_t>((std::max(position, begin) - begin) / element_bytes);
  }

  void add_equal(const at::Tensor& tensor, std::size_t entry) {
    const auto begin = cut(entry, file_.rank, tensor.element_size());
    const auto end = cut(entry, file_.rank + 1, tensor.element_size());
    add(tensor, entry, begin, end - begin);
    passed_ += bytes_of(entry);
  }

  void add_sharded(const ShardedTensor& tensor, std::size_t entry) {
    const auto elements =
        static_cast<std::int64_t>(bytes_of(entry) / c10::elementSize(tensor.dtype));
    std::int64_t free = 0;  // the first element after the previous piece
    for (const auto& [begin, values] : tensor.pieces) {
      if (!values.defined() || values.dim() != 1 || !values.is_contiguous()) {
        refuse(tensor, "it is not a contiguous tensor of one dimension");
      }
      if (values.scalar_type() != tensor.dtype) {
        refuse(tensor,
               fmt::format("its dtype is {}, that of the tensor {}",
                           c10::toString(values.scalar_type()), c10::toString(tensor.dtype)));
      }
      if (begin < free || values.numel() > elements - begin) {
        refuse(tensor, fmt::format("it has {} elements from {} on; the pieces must be ascending, "
                                   "without overlap, within {} elements",
                                   values.numel(), begin, elements));
      }
      free = begin + values.numel();
      add(values, entry, 0, values.numel(), begin);
    }
  }

  const FileToStage& file_;
  SafetensorsLayout layout_;
  FilePieces result_;
  std::uint64_t equal_bytes_ = 0;  // of all tensors that are equal on all ranks
  std::uint64_t passed_ = 0;       // of those before the current entry
};

}  // namespace

at::Tensor TensorPiece::values() const {
  if (count == tensor.numel()) return tensor;
  return tensor.contiguous().view(-1).narrow(0, begin, count);
}

FilePieces pieces_of(const FileToStage& file) { return Collector(file).collect(); }

}  // namespace lockstep
