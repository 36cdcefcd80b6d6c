#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <iterator>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/gpu/gather_internal.h"
#include "lockstep/gpu/nccl_ratio_internal.h"
#include "lockstep/machine/gpus.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto* kFormat = "lockstep-nccl-ratios";
constexpr std::array<std::size_t, 2> kSizes{std::size_t{1} << 20U, std::size_t{25} << 20U};
constexpr int kWarmUps = 2;
constexpr int kCalls = 5;

std::optional<NcclRatio> ratio_in(const Json& row) {
  const auto number = [&](const char* name) {
    const auto found = row.find(name);
    return found != row.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  if (!row.is_object() || !row.contains("card") || !row["card"].is_string()) return std::nullopt;
  const bool is_valid = number("ranks") >= 1 && number("ranks") <= 1e6 && number("bytes") >= 1 &&
                        number("bytes") <= 1e15 && number("exact_us") > 0 && number("fast_us") > 0;
  if (!is_valid) return std::nullopt;
  return NcclRatio{.card = row["card"].get<std::string>(),
                   .ranks = static_cast<int>(number("ranks")),
                   .bytes = static_cast<std::size_t>(number("bytes")),
                   .exact_us = number("exact_us"),
                   .fast_us = number("fast_us")};
}

std::string uuid_in_words(const DeviceFacts& facts) {
  std::string words = "GPU-";
  for (std::size_t i = 0; i < facts.uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) words += '-';
    words += fmt::format("{:02x}", facts.uuid[i]);
  }
  return words;
}

// The name of the card of rank 0; its UUID if the driver does not tell the name.
std::string card_of(const DeviceTransportParts& parts) {
  const auto uuid = uuid_in_words(parts.peers.front().facts);
  for (const auto& gpu : list_gpus(Environment::of_process())) {
    if (gpu.uuid == uuid && !gpu.name.empty()) return gpu.name;
  }
  return uuid;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The shortest of several calls, in microseconds; of the slowest rank.
double time_of(Group& group, const Call& call) {
  double shortest = 0;
  for (int i = 0; i < kWarmUps + kCalls; ++i) {
    const auto start = std::chrono::steady_clock::now();
    group.synchronize(*group.start(call, nullptr));
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    if (i == kWarmUps || (i > kWarmUps && time.count() < shortest)) shortest = time.count();
  }
  const auto all = gather(group, shortest, "times of NCCL");
  return *std::max_element(all.begin(), all.end());
}

NcclRatio measure(Group& group, const DeviceTransportParts& parts, std::size_t bytes,
                  const NcclRatioHooks& hooks) {
  const auto memory = hooks.allocate(bytes);
  const Call call{.kind = Collective::all_reduce,
                  .dtype = DType::float32,
                  .count = static_cast<std::int64_t>(bytes / sizeof(float)),
                  .name = "exact against fast",
                  .input = memory->bytes(),
                  .output = memory->bytes(),
                  .device = {DeviceKind::cuda, parts.context->device()},
                  .stream = parts.context->stream()};
  NcclRatio ratio;
  ratio.ranks = group.size();
  ratio.bytes = bytes;
  hooks.select(NcclReduction::fast);
  ratio.fast_us = time_of(group, call);
  hooks.select(NcclReduction::exact);
  ratio.exact_us = time_of(group, call);
  return ratio;
}

}  // namespace

std::vector<NcclRatio> nccl_ratios_in(std::string_view text) {
  const auto json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::vector<NcclRatio> ratios;
  if (!json.is_object() || json.value("format", Json()) != kFormat || !json.contains("rows")) {
    return ratios;
  }
  for (const auto& row : json["rows"]) {
    if (auto ratio = ratio_in(row)) ratios.push_back(std::move(*ratio));
  }
  return ratios;
}

std::string to_json(std::span<const NcclRatio> ratios) {
  Json rows = Json::array();
  for (const auto& ratio : ratios) {
    rows.push_back({{"card", ratio.card},
                    {"ranks", ratio.ranks},
                    {"bytes", ratio.bytes},
                    {"exact_us", ratio.exact_us},
                    {"fast_us", ratio.fast_us}});
  }
  const Json json{{"format", kFormat}, {"version", 1}, {"rows", std::move(rows)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string in_words(std::span<const NcclRatio> ratios) {
  std::vector<std::string> parts;
  for (const auto& ratio : ratios) {
    parts.push_back(
        fmt::format("{:.2f} at {} MiB", ratio.exact_us / ratio.fast_us, ratio.bytes >> 20U));
  }
  return fmt::format("nccl: time of an exact all-reduce over that of a fast one: {} ({} ranks, {})",
                     fmt::join(parts, ", "), ratios.empty() ? 0 : ratios.front().ranks,
                     ratios.empty() ? "" : ratios.front().card);
}

std::filesystem::path nccl_ratio_file(const Environment& environment) {
  constexpr auto* kName = "lockstep/nccl_ratios.json";
  if (const auto folder = environment.find("XDG_CACHE_HOME")) {
    return std::filesystem::path(*folder) / kName;
  }
  const auto home = environment.find("HOME");
  return home ? std::filesystem::path(*home) / ".cache" / kName : std::filesystem::path();
}

void tune_nccl_ratios(Group& group, const DeviceTransportParts& parts,
                      const std::filesystem::path& file, const NcclRatioHooks& hooks) {
  const bool is_first = group.rank() == 0;
  const auto card = is_first ? card_of(parts) : "";
  auto known = is_first ? nccl_ratios_in(text_of(file)) : std::vector<NcclRatio>();
  const auto find = [&](std::size_t bytes) {
    return std::find_if(known.begin(), known.end(), [&](const NcclRatio& ratio) {
      return ratio.card == card && ratio.ranks == group.size() && ratio.bytes == bytes;
    });
  };
  // Rank 0 has the file and decides for all.
  std::array<bool, kSizes.size()> missing{};
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    missing[i] = is_first && find(kSizes[i]) == known.end();
  }
  missing = gather(group, missing, "ratios of NCCL").front();
  bool has_measured = false;
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    if (!missing[i]) continue;
    auto ratio = measure(group, parts, kSizes[i], hooks);
    ratio.card = card;
    known.push_back(std::move(ratio));
    has_measured = true;
  }
  if (!is_first) return;
  const Log log({.rank = parts.peers.front().global_rank});
  std::vector<NcclRatio> own;
  for (const auto bytes : kSizes) own.push_back(*find(bytes));
  log.info(in_words(own));
  if (!has_measured) return;
  try {
    std::filesystem::create_directories(file.parent_path());
    write_whole(file.string(), to_json(known));
  } catch (const std::exception& error) {
    log.warning(fmt::format("the ratio of NCCL is measured again the next time: {}", error.what()));
  }
}

}  // namespace lockstep
