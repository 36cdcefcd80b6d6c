#include "lockstep/machine/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "lockstep/machine/nvml.h"

namespace lockstep {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  while (true) {
    const auto comma = list.find(',');
    entries.push_back(trimmed(list.substr(0, comma)));
    if (comma == std::string_view::npos) return entries;
    list.remove_prefix(comma + 1);
  }
}

// CUDA reads the digits that an entry starts with, and ignores what follows them.
std::optional<std::size_t> number_of(std::string_view entry) {
  std::size_t number = 0;
  std::size_t digits = 0;
  while (digits < entry.size() && digits < 6 && entry[digits] >= '0' && entry[digits] <= '9') {
    number = 10 * number + static_cast<std::size_t>(entry[digits++] - '0');
  }
  return digits > 0 ? std::optional(number) : std::nullopt;
}

// What an entry can name: a card, or one of its MIG devices. CUDA uses a card in MIG mode as its
// first MIG device.
struct Candidate {
  Gpu gpu;
  bool is_mig = false;
};

Candidate candidate_of(const GpuCard& card) {
  if (card.mig_devices.empty()) return {card.gpu};
  return {card.mig_devices.front(), true};
}

std::optional<Candidate> find_by_number(std::span<const GpuCard> cards, std::string_view entry) {
  const auto number = number_of(entry);
  if (!number || *number >= cards.size()) return std::nullopt;
  return candidate_of(cards[*number]);
}

// The only one whose UUID starts with `entry`.
std::optional<Candidate> find_by_uuid(std::span<const GpuCard> cards, std::string_view entry) {
  std::vector<Candidate> found;
  for (const auto& card : cards) {
    if (card.gpu.uuid.starts_with(entry)) found.push_back(candidate_of(card));
    for (const auto& device : card.mig_devices) {
      if (device.uuid.starts_with(entry)) found.push_back({device, true});
    }
  }
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

std::optional<Candidate> find(std::span<const GpuCard> cards, std::string_view entry,
                              std::string_view first) {
  for (const std::string_view prefix : {"GPU-", "MIG-"}) {
    // All entries are of the kind of the first one.
    if (first.starts_with(prefix)) {
      if (!entry.starts_with(prefix)) return std::nullopt;
      return find_by_uuid(cards, entry);
    }
  }
  return find_by_number(cards, entry);
}

std::string value_of_line(const std::string& line, std::string_view field) {
  if (!line.starts_with(field)) return "";
  return std::string(trimmed(std::string_view(line).substr(field.size())));
}

// Cards as the files of the driver list them; the UUID of a card that is not initialized is
// "GPU-????????-…", which counts as unknown.
std::vector<GpuCard> cards_in_files(const std::string& driver_folder) {
  std::vector<GpuCard> cards;
  std::error_code error;  // without a driver there is no folder
  for (std::filesystem::directory_iterator entry(driver_folder + "/gpus", error), end;
       !error && entry != end; entry.increment(error)) {
    Gpu gpu{.pci_bus = short_pci_bus(entry->path().filename().string())};
    bool excluded = false;
    std::ifstream file(entry->path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) gpu.name = value_of_line(line, "Model:");
      if (line.starts_with("GPU UUID:")) gpu.uuid = value_of_line(line, "GPU UUID:");
      excluded = excluded || value_of_line(line, "GPU Excluded:") == "Yes";
    }
    if (gpu.uuid.find('?') != std::string::npos) gpu.uuid.clear();
    if (!excluded) cards.push_back({std::move(gpu)});
  }
  std::sort(cards.begin(), cards.end(),
            [](const GpuCard& a, const GpuCard& b) { return a.gpu.pci_bus < b.gpu.pci_bus; });
  return cards;
}

bool suffices(std::span<const GpuCard> cards, const std::optional<std::string>& variable) {
  if (cards.empty() || (variable && variable->starts_with("MIG-"))) return false;
  const bool by_uuid = variable && variable->starts_with("GPU-");
  return !by_uuid || std::none_of(cards.begin(), cards.end(),
                                  [](const GpuCard& card) { return card.gpu.uuid.empty(); });
}

}  // namespace

std::vector<Gpu> visible_gpus(std::span<const GpuCard> cards,
                              const std::optional<std::string>& variable) {
  std::vector<Candidate> chosen;
  if (!variable) {
    for (const auto& card : cards) chosen.push_back(candidate_of(card));
  } else {
    const auto entries = entries_of(*variable);
    for (const auto entry : entries) {
      auto found = find(cards, entry, entries.front());
      if (!found) break;
      const bool repeated = std::any_of(chosen.begin(), chosen.end(), [&](const Candidate& other) {
        return other.gpu == found->gpu;
      });
      if (repeated) return {};
      chosen.push_back(std::move(*found));
    }
  }
  const auto mig = std::find_if(chosen.begin(), chosen.end(),
                                [](const Candidate& candidate) { return candidate.is_mig; });
  if (mig != chosen.end()) return {mig->gpu};
  std::vector<Gpu> gpus;
  for (auto& candidate : chosen) gpus.push_back(std::move(candidate.gpu));
  return gpus;
}

std::vector<Gpu> list_gpus(const Environment& environment, GpuDetail detail,
                           const GpuSources& sources) {
  const auto variable = environment.find_even_empty("CUDA_VISIBLE_DEVICES");
  auto cards = cards_in_files(sources.driver_folder);
  std::error_code error;
  const bool has_driver = !cards.empty() || std::filesystem::exists(sources.control_file, error);
  if (has_driver && (detail == GpuDetail::nvml || !suffices(cards, variable))) {
    // A container may have the driver without NVML: then the files are all there is.
    if (const auto nvml = Nvml::open(sources.nvml ? sources.nvml() : load_nvml())) {
      cards = nvml->cards();
    }
  }
  return visible_gpus(cards, variable);
}

std::string gpu_driver_version(const GpuSources& sources) {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build …"
  std::ifstream file(sources.driver_folder + "/version");
  for (std::string word; file >> word;) {
    const bool is_version = std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
                            std::count(word.begin(), word.end(), '.') >= 1;
    if (is_version) return word;
  }
  return "";
}

std::string short_pci_bus(std::string_view bus_id) {
  while (bus_id.find(':') > 4 && bus_id.starts_with('0')) bus_id.remove_prefix(1);
  std::string text(bus_id);
  for (auto& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string gpus_in_words(std::span<const Gpu> gpus) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const auto& gpu : gpus) {
    auto kind = gpu.name.empty() ? std::string("GPU of unknown name") : gpu.name;
    if (gpu.memory_bytes > 0) kind += fmt::format(" with {} GiB", gpu.memory_bytes >> 30U);
    if (kinds.empty() || kinds.back().first != kind) kinds.emplace_back(kind, 0);
    ++kinds.back().second;
  }
  std::string words;
  for (const auto& [kind, count] : kinds) {
    words += fmt::format("{}{} × {}", words.empty() ? "" : ", ", count, kind);
  }
  return words;
}

}  // namespace lockstep
