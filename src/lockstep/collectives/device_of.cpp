#include "lockstep/collectives/device_of.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/collectives/gather_values.h"
#include "lockstep/machine/gpus.h"
#include "lockstep/rendezvous/world.h"

namespace lockstep {
namespace {

constexpr char kShareVariable[] = "LOCKSTEP_ALLOW_SHARED_GPU";

std::string gpus_text(std::size_t count) {
  return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
}

// Why CUDA shows no GPU although the machine has one; empty if that is intended.
std::string trouble_of(const Environment& environment) {
  const auto variable = environment.find_even_empty("CUDA_VISIBLE_DEVICES");
  if (variable && (variable->empty() || *variable == "-1" || *variable == "NoDevFiles")) return {};
  const auto cards = list_gpus({}).size();
  if (cards == 0) return {};
  if (variable && list_gpus(environment).empty()) {
    return fmt::format(
        "CUDA_VISIBLE_DEVICES is \"{}\", which names none of the {} of this machine; correct it, "
        "or set it to an empty value to train on the CPU",
        *variable, gpus_text(cards));
  }
  if (!at::globalContext().hasCUDART()) return {};  // a build without CUDA
  return fmt::format(
      "the driver has {}, but LibTorch can use none of them; run nvidia-smi, and update the driver "
      "if it is older than CUDA 13. Set CUDA_VISIBLE_DEVICES to an empty value to train on the CPU",
      gpus_text(cards));
}

VisibleGpus own_gpus(const World& world, const DeviceOptions& options) {
  const auto environment = Environment::of_process();
  VisibleGpus own{.host = world.host_of(world.rank()),
                  .local_rank = world.local_rank(),
                  .may_share = options.share || environment.flag(kShareVariable)};
  const int count = at::hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
  if (count == 0) own.trouble = trouble_of(environment);
  const auto listed = list_gpus(environment);
  for (int index = 0; index < count; ++index) {
    // Without the driver's list, GPUs are told apart by CUDA's number.
    const bool known = std::ssize(listed) == count;
    const auto gpu = known ? listed[static_cast<std::size_t>(index)] : Gpu{};
    own.identities.push_back(!gpu.uuid.empty()      ? gpu.uuid
                             : !gpu.pci_bus.empty() ? gpu.pci_bus
                                                    : fmt::format("GPU {}", index));
  }
  return own;
}

std::string to_text(const VisibleGpus& own) {
  return nlohmann::json{{"host", own.host},
                        {"local_rank", own.local_rank},
                        {"identities", own.identities},
                        {"may_share", own.may_share},
                        {"trouble", own.trouble}}
      .dump();
}

VisibleGpus from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.host = json.at("host"),
          .local_rank = json.at("local_rank"),
          .identities = json.at("identities").get<std::vector<std::string>>(),
          .may_share = json.at("may_share"),
          .trouble = json.at("trouble")};
}

constexpr char kFix[] =
    "Start at most one rank per GPU, show the ranks more GPUs with CUDA_VISIBLE_DEVICES, or allow "
    "ranks to share a GPU with --allow-shared-gpu (in a program: DeviceOptions::share)";

int index_of(const VisibleGpus& own, std::size_t rank) {
  const auto count = static_cast<int>(own.identities.size());
  if (own.local_rank < count) return own.local_rank;
  if (count == 1) return 0;  // its own, or found to be shared below
  if (own.may_share) return own.local_rank % count;
  throw UsageError(fmt::format("rank {} is number {} of its node (from 0) and sees {}. {}", rank,
                               own.local_rank, gpus_text(own.identities.size()), kFix));
}

}  // namespace

std::vector<int> assign_gpus(std::span<const VisibleGpus> ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].trouble.empty()) continue;
    throw UsageError(fmt::format("rank {}: {}", rank, ranks[rank].trouble));
  }
  const auto sees_none = [](const VisibleGpus& own) { return own.identities.empty(); };
  if (std::ranges::all_of(ranks, sees_none)) return {};
  const auto without = std::ranges::find_if(ranks, sees_none) - ranks.begin();
  const auto with = std::ranges::find_if_not(ranks, sees_none) - ranks.begin();
  if (without < std::ssize(ranks)) {
    throw UsageError(fmt::format(
        "rank {} sees no GPU and rank {} sees {}: compare CUDA_VISIBLE_DEVICES and nvidia-smi on "
        "their nodes. To train on the CPU, set CUDA_VISIBLE_DEVICES to an empty value on all",
        without, with, gpus_text(ranks[static_cast<std::size_t>(with)].identities.size())));
  }
  std::vector<int> indices;
  std::map<std::pair<int, std::string>, std::size_t> users;  // host and GPU: its first rank
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& own = ranks[rank];
    indices.push_back(index_of(own, rank));
    const auto& identity = own.identities[static_cast<std::size_t>(indices.back())];
    const auto [user, is_first] = users.emplace(std::pair(own.host, identity), rank);
    if (is_first || (own.may_share && ranks[user->second].may_share)) continue;
    throw UsageError(fmt::format("ranks {} and {} would share one GPU ({}). {}", user->second, rank,
                                 identity, kFix));
  }
  return indices;
}

at::Device device_of(const World& world, const DeviceOptions& options) {
  const auto own = own_gpus(world, options);
  std::vector<VisibleGpus> all;
  if (world.size() == 1) {
    all.push_back(own);
  } else {
    const ProcessGroup group(world, {.name = "devices"});
    for (const auto& text : gather_values(group, to_text(own), {.name = "visible GPUs"})) {
      all.push_back(from_text(text));
    }
  }
  const auto indices = assign_gpus(all);
  if (indices.empty()) return at::kCPU;
  const at::Device device(
      at::kCUDA, static_cast<at::DeviceIndex>(indices[static_cast<std::size_t>(world.rank())]));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

}  // namespace lockstep
