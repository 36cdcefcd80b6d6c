#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/ddp/advice_internal.h"
#include "lockstep/ddp/option_check_internal.h"

namespace lockstep {
namespace {

std::string text_of_bucket_bytes(std::int64_t value) {
  const auto bytes = static_cast<std::size_t>(value);
  if (bytes == kAutotune) return "kAutotune";
  return bytes == kOneBucket ? "kOneBucket" : fmt::format("{}", bytes);
}

std::string text_of_normalize(std::int64_t value) {
  return static_cast<Normalize>(value) == Normalize::by_rank ? "by_rank" : "by_count";
}

std::string text_of_buffers(std::int64_t value) {
  switch (static_cast<BufferSync>(value)) {
    case BufferSync::each_step:
      return "each_step";
    case BufferSync::once:
      return "once";
    case BufferSync::never:
      return "never";
  }
  return fmt::format("{}", value);
}

std::string text_of_shard(std::int64_t value) {
  switch (static_cast<Shard>(value)) {
    case Shard::none:
      return "none";
    case Shard::optimizer:
      return "optimizer";
    case Shard::gradients:
      return "gradients";
  }
  return fmt::format("{}", value);
}

std::string text_of_copies(std::int64_t value) {
  return static_cast<Copies>(value) == Copies::per_rank ? "per_rank" : "per_host";
}

std::string text_of_bool(std::int64_t value) { return value != 0 ? "true" : "false"; }

std::string text_of_number(std::int64_t value) { return fmt::format("{}", value); }

struct Option {
  const char* name;
  std::string (*text)(std::int64_t value);
};
constexpr std::array<Option, 9> kOptions{{{"accumulate", text_of_number},
                                          {"normalize", text_of_normalize},
                                          {"bucket_bytes", text_of_bucket_bytes},
                                          {"buffers", text_of_buffers},
                                          {"gradient_buffers", text_of_number},
                                          {"sync_batch_norm", text_of_bool},
                                          {"shard", text_of_shard},
                                          {"reduce_each_micro_batch", text_of_bool},
                                          {"copies", text_of_copies}}};
// The options in this order, then whether the group is reserved on this rank.
constexpr auto kNumbers = kOptions.size() + 1;
using Numbers = std::array<std::int64_t, kNumbers>;

constexpr auto kAdvice = "Every rank makes the Ddp, with the same options";

}  // namespace

ProcessGroup agree_on_group(const ProcessGroup& group, const DdpOptions& options) {
  const Numbers own{options.accumulate,
                    static_cast<std::int64_t>(options.normalize),
                    static_cast<std::int64_t>(options.bucket_bytes),
                    static_cast<std::int64_t>(options.buffers),
                    options.gradient_buffers,
                    options.sync_batch_norm ? 1 : 0,
                    static_cast<std::int64_t>(options.shard),
                    options.reduce_each_micro_batch ? 1 : 0,
                    static_cast<std::int64_t>(options.copies),
                    group.is_reserved() ? 1 : 0};
  const auto count = static_cast<std::int64_t>(kNumbers);
  auto input = at::empty({count}, at::kLong);
  std::copy(own.begin(), own.end(), input.mutable_data_ptr<std::int64_t>());
  auto all = at::empty({group.size(), count}, at::kLong);
  with_advice(kAdvice, [&] { group.all_gather(all, input, {.name = "options of Ddp"}).wait(); });
  const auto rows = all.accessor<std::int64_t, 2>();
  bool reserved = false;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (std::size_t i = 0; i < kOptions.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i);
      if (rows[rank][column] == rows[0][column]) continue;
      const auto& [name, text] = kOptions[i];
      throw PeerError(
          group.global_rank(rank),
          fmt::format("DdpOptions differ between ranks: DdpOptions::{} is {} on rank {} "
                      "and {} on rank {}; set the same options on every rank",
                      name, text(rows[0][column]), group.global_rank(0), text(rows[rank][column]),
                      group.global_rank(rank)));
    }
    reserved = reserved || rows[rank][count - 1] != 0;
  }
  return reserved ? group.split(0) : group.reserve();
}

void expect_same_hook(const ProcessGroup& group, const GradientHook& hook) {
  const auto own = hook.name() + (hook.is_simple() ? " (returns Work)" : " (returns HookTask)");
  const auto names = with_advice("Every rank calls ddp.set_hook(), with the same hook", [&] {
    return gather_values(group, own, {.name = "hook of Ddp"});
  });
  for (std::size_t rank = 1; rank < names.size(); ++rank) {
    if (names[rank] == names[0]) continue;
    const int culprit = group.global_rank(static_cast<int>(rank));
    throw PeerError(culprit,
                    fmt::format("hooks differ between ranks: it is {} on rank {} and {} on "
                                "rank {}; set the same hook on every rank",
                                names[0], group.global_rank(0), names[rank], culprit));
  }
}

}  // namespace lockstep
