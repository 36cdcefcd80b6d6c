#include "models/gpt_cache.h"

#include <ATen/ops/empty.h>

#include "lockstep/base/assert.h"

namespace lockstep::models {
namespace {

at::Tensor room_like(const at::Tensor& first, std::int64_t capacity) {
  return at::empty({first.size(0), first.size(1), capacity, first.size(3)}, first.options());
}

}  // namespace

std::pair<at::Tensor, at::Tensor> KeyValues::append(const at::Tensor& keys,
                                                    const at::Tensor& values) {
  const auto num_positions = keys.size(2);
  LOCKSTEP_ASSERT(length_ + num_positions <= capacity_,
                  "the model checks this before its blocks run");
  if (!keys_.defined()) {
    keys_ = room_like(keys, capacity_);
    values_ = room_like(values, capacity_);
  }
  keys_.narrow(2, length_, num_positions).copy_(keys);
  values_.narrow(2, length_, num_positions).copy_(values);
  length_ += num_positions;
  return {keys_.narrow(2, 0, length_), values_.narrow(2, 0, length_)};
}

GptCache::GptCache(std::int64_t layers, std::int64_t context)
    : blocks_(static_cast<std::size_t>(layers), KeyValues(context)) {}

void GptCache::clear() noexcept {
  for (auto& block : blocks_) block.clear();
}

}  // namespace lockstep::models
