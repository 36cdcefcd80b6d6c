#include "cli/train/old_spellings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/train/length.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

const std::vector<OldSetting>& old_settings() {
  static const std::vector<OldSetting> table{
      {"rate", {"lr"}},
      {"rate-scaling", {"lr-scaling"}},
      {"rate-batch", {"base-batch-size"}},
      {"rate-floor", {"min-lr-ratio"}},
      {"clip", {"max-grad-norm"}},
      {"accumulate", {"grad-accum"}},
      {"held-out", {"val-fraction"}},
      {"evaluate-every", {"eval-every"}},
      {"evaluate-batches", {"eval-batches"}},
      {"for", {"steps", "epochs", "tokens", "time"}},
  };
  return table;
}

}  // namespace

const OldSetting* try_old_setting(std::string_view name) {
  const auto& table = old_settings();
  const auto found = std::ranges::find(table, name, &OldSetting::name);
  return found == table.end() ? nullptr : &*found;
}

std::string renaming_text(const OldSetting& old,
                          const std::function<std::string(std::string_view)>& spell) {
  std::vector<std::string> names;
  for (const auto name : old.new_names) names.push_back(spell(name));
  return fmt::format("{} is now {}", spell(old.name), fmt::join(names, " or "));
}

NamedText with_new_name(NamedText setting) {
  const auto* old = try_old_setting(setting.name);
  if (old == nullptr) return setting;
  if (old->new_names.size() == 1) {
    return {std::string(old->new_names.front()), std::move(setting.text)};
  }
  const auto length = parse_train_length(setting.name, setting.text);
  return {std::string(length_option(length.unit).substr(2)), value_text(length)};
}

std::string noted_configuration_with_new_names(const std::string& json) {
  const auto noted = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!noted.is_object()) return json;
  auto result = nlohmann::json::object();
  for (const auto& [name, value] : noted.items()) {
    const auto* old = try_old_setting(name);
    result[std::string(old == nullptr ? name : old->new_names.front())] = value;
  }
  return result.dump();
}

const std::map<std::string, std::string>& renamed_metrics() {
  static const std::map<std::string, std::string> table{{"rate", "lr"}};
  return table;
}

}  // namespace lockstep::cli
