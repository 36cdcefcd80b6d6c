#include "lockstep/ddp/int8_compression.h"

#include <ATen/ops/add.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/ddp/int8_codec_internal.h"
#include "lockstep/ddp/parameter_memory_internal.h"
#include "lockstep/kernels/int8_blocks.h"
#include "lockstep/kernels/leaf_tree.h"

namespace lockstep {
namespace {

constexpr auto kKind = "int8";
constexpr auto kBlock = static_cast<std::int64_t>(kInt8Block);

std::int64_t encoded_bytes(std::int64_t count) {
  return static_cast<std::int64_t>(int8_bytes(static_cast<std::size_t>(count)));
}

// How a bucket is divided: the shard of rank r begins at r × shard and is shorter, or empty, at the
// end of the bucket. Its encoded values are in part r of the memory that is sent, and fill it if
// the shard is not shorter.
struct Shards {
  Shards(std::int64_t num_values, int num_ranks) : count(num_values), ranks(num_ranks) {
    const auto blocks = (count + kBlock - 1) / kBlock;
    shard = (blocks + ranks - 1) / ranks * kBlock;
    part_bytes = encoded_bytes(shard);
  }

  [[nodiscard]] std::int64_t begin(int rank) const { return std::min(count, rank * shard); }
  [[nodiscard]] std::int64_t length(int rank) const { return begin(rank + 1) - begin(rank); }
  [[nodiscard]] at::Tensor of(const at::Tensor& values, int rank) const {
    return values.slice(0, begin(rank), begin(rank + 1));
  }
  [[nodiscard]] at::Tensor part(const at::Tensor& bytes, int rank) const {
    return bytes.slice(0, rank * part_bytes, (rank + 1) * part_bytes);
  }
  /// The bytes of part `rank` that hold its shard.
  [[nodiscard]] at::Tensor encoded(const at::Tensor& bytes, int rank) const {
    return part(bytes, rank).slice(0, 0, encoded_bytes(length(rank)));
  }
  [[nodiscard]] std::int64_t bytes() const { return ranks * part_bytes; }

  std::int64_t count;
  int ranks;
  std::int64_t shard = 0;       // values
  std::int64_t part_bytes = 0;  // of a whole shard
};

bool is_worth_it(const GradientBucket& bucket, const Shards& shards) {
  return bucket.num_ranks() > 1 && bucket.values().scalar_type() != at::kDouble &&
         shards.bytes() < static_cast<std::int64_t>(bucket.values().nbytes());
}

}  // namespace

struct Int8Compression::State {
  std::shared_ptr<ParameterMemory::Memory> memory_of(const GradientBucket& bucket);

  ParameterMemory feedback;
  std::map<int, std::vector<BucketParameter>> known;  // the parameters of each bucket
};

std::shared_ptr<ParameterMemory::Memory> Int8Compression::State::memory_of(
    const GradientBucket& bucket) {
  auto& parameters = known[bucket.index()];
  if (auto memory = feedback.of(bucket.index()); memory && has_parameters(bucket, parameters)) {
    return memory;
  }
  parameters.assign(bucket.parameters().begin(), bucket.parameters().end());
  std::vector<ParameterMemory::StateRange> ranges;
  for (const auto& parameter : parameters) {
    ranges.push_back({parameter.name, parameter.sizes, parameter.begin});
  }
  const auto options = bucket.values().options().dtype(at::kFloat);
  return feedback.lay_out(bucket.index(), ranges, bucket.values().numel(), options).memory;
}

namespace {

using Memory = ParameterMemory::Memory;

// The shards of the other ranks are encoded. The own one stays exact: memory.next has its values.
void encode_shards(const GradientBucket& bucket, const Shards& shards, const at::Tensor& values,
                   const Memory& memory, const at::Tensor& send) {
  for (int rank = 0; rank < shards.ranks; ++rank) {
    if (shards.length(rank) == 0) continue;
    const auto from = shards.of(values, rank);
    const auto error = shards.of(memory.now, rank);
    auto next = shards.of(memory.next, rank);
    if (rank == bucket.rank()) {
      at::add_out(next, from, error);
    } else {
      int8_encode(from, error, next, shards.encoded(send, rank));
    }
  }
}

// The average of the own shard, encoded into its part of `gathered`. The next contribution of this
// rank to its shard corrects what that loses, for all ranks: so it is a part of a sum again.
void encode_average(const GradientBucket& bucket, const Shards& shards, const at::Tensor& values,
                    const Memory& memory, const at::Tensor& received, const at::Tensor& gathered) {
  const auto own = bucket.rank();
  if (shards.length(own) == 0) return;
  std::vector<at::Tensor> encoded;
  for (int rank = 0; rank < shards.ranks; ++rank) {
    // Every part that arrived has the shard of this rank.
    encoded.push_back(shards.part(received, rank).slice(0, 0, encoded_bytes(shards.length(own))));
  }
  const auto average = shards.of(values, own);
  const auto next = shards.of(memory.next, own);
  const auto weight = static_cast<double>(bucket.total_weight());
  int8_average(TreePlan::over_ranks(shards.ranks), encoded, own, next, weight, average);
  int8_encode(average, {}, next, shards.encoded(gathered, own));
  next.mul_(weight);
}

}  // namespace

Int8Compression::Int8Compression() : state_(std::make_shared<State>()) {}

GradientHook Int8Compression::hook() const {
  const auto reduce = [](GradientBucket& bucket, std::shared_ptr<State> state) -> HookTask {
    const Shards shards(bucket.values().numel(), bucket.num_ranks());
    if (!is_worth_it(bucket, shards)) {
      co_await bucket.all_reduce(bucket.values());
      co_return;
    }
    const bool is_float = bucket.values().scalar_type() == at::kFloat;
    const auto memory = state->memory_of(bucket);
    auto values = is_float ? bucket.values() : bucket.scratch("values", shards.count, at::kFloat);
    auto send = bucket.scratch("send", shards.bytes(), at::kByte);
    auto received = bucket.scratch("received", shards.bytes(), at::kByte);
    bucket.encode([&] {
      if (!is_float) values.copy_(bucket.values());
      encode_shards(bucket, shards, values, *memory, send);
    });
    co_await bucket.all_to_all(received, send);
    bucket.encode([&] { encode_average(bucket, shards, values, *memory, received, send); });
    // `send` is free again: the average is in the own part, the input of the next call.
    co_await bucket.all_gather(received, shards.part(send, bucket.rank()));
    bucket.decode([&] {
      for (int rank = 0; rank < shards.ranks; ++rank) {
        if (shards.length(rank) == 0) continue;
        int8_decode(shards.encoded(received, rank), shards.of(values, rank));
      }
      if (!is_float) bucket.values().copy_(values);
    });
    bucket.on_commit([memory] { memory->commit(); });
  };
  return {[state = state_, reduce](GradientBucket& bucket) { return reduce(bucket, state); },
          kKind};
}

std::vector<std::pair<std::string, at::Tensor>> Int8Compression::rank_tensors() const {
  return state_->feedback.tensors();
}

std::string Int8Compression::state_json() const {
  return nlohmann::json{{"kind", kKind},
                        {"error", nlohmann::json::parse(state_->feedback.shapes_json())}}
      .dump();
}

void Int8Compression::load_state_json(std::string_view json) {
  try {
    const auto saved = nlohmann::json::parse(json);
    if (const auto kind = saved.at("kind").get<std::string>(); kind != kKind) {
      throw UsageError(fmt::format(
          "this is the state of compression {}, and the program compresses with {}; use the "
          "compression of the run that saved it, or another folder",
          kind, kKind));
    }
    state_->feedback.load_shapes_json(saved.at("error").dump());
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("the state of int8 compression is invalid: {}", error.what()));
  }
}

}  // namespace lockstep
