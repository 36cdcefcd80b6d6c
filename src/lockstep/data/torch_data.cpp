#include "lockstep/data/torch_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

}  // namespace

void copy_into_rows(const at::Tensor& tensor, const Rows& rows, int field) {
  auto to = rows.tensor(field);
  if (tensor.scalar_type() != to.scalar_type() || tensor.sizes() != to.sizes()) {
    throw UsageError(fmt::format(
        "field {:?} is {} [{}] for {} samples, but get_batch() returned {} [{}]; all samples must "
        "have the same dtype and shape",
        rows.layout().fields()[static_cast<std::size_t>(field)].name,
        c10::toString(to.scalar_type()), fmt::join(shape_of(to), ", "), rows.count(),
        c10::toString(tensor.scalar_type()), fmt::join(shape_of(tensor), ", ")));
  }
  to.copy_(tensor);
}

SampleLayout layout_of_example(const at::Tensor& data, const at::Tensor& target) {
  return {{"input", data.scalar_type(), shape_of(data)},
          {"target", target.scalar_type(), shape_of(target)}};
}

}  // namespace lockstep
