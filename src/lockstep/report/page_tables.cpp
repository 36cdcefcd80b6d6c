// Samples of text, configuration, environment and sample record.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

constexpr std::size_t kShownSamples = 6;
constexpr std::size_t kLongestSample = 1200;  // bytes

std::string sample_html(const SampleText& sample) {
  auto text = sample.text;
  if (text.size() > kLongestSample) {
    text.resize(kLongestSample);
    // Not in the middle of a character.
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80)
      text.pop_back();
    if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
    text += " …";
  }
  return fmt::format(
      R"(<figure class="sample"><figcaption>step {}</figcaption><blockquote>{}</blockquote></figure>
)",
      grouped(sample.step), escaped(text));
}

std::string settings_rows(const std::vector<RunSetting>& settings, bool defaults) {
  std::string rows;
  for (const auto& setting : settings) {
    if ((setting.origin == "default") != defaults) continue;
    rows += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n", escaped(setting.name),
                        escaped(setting.value), escaped(setting.origin));
  }
  return rows;
}

std::string table(const std::string& rows) {
  return fmt::format(R"(<div class="scroll"><table class="facts"><tbody>
{}</tbody></table></div>)",
                     rows);
}

std::string row(std::string_view name, const std::string& value) {
  return value.empty() ? ""
                       : fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", name, escaped(value));
}

}  // namespace

std::string samples_html(const RunRecord& run) {
  const auto& samples = run.metrics.samples;
  if (samples.empty()) return {};
  // The first, the last, and evenly chosen ones between; the newest is the first on the page.
  const auto shown = std::min(samples.size(), kShownSamples);
  std::string html;
  for (std::size_t i = shown; i-- > 0;) {
    const auto index = shown == 1 ? 0 : i * (samples.size() - 1) / (shown - 1);
    html += sample_html(samples[index]);
  }
  return fmt::format(
      R"(<section class="card" id="samples"><h2>Text that the model writes</h2><p class="note">{} of {} samples, the newest first.</p><div class="samples">{}</div></section>
)",
      shown, samples.size(), html);
}

std::string settings_html(const RunRecord& run) {
  if (run.settings.empty()) return {};
  const auto given = settings_rows(run.settings, false);
  const auto defaults = std::ranges::count(run.settings, "default", &RunSetting::origin);
  return fmt::format(
      R"(<section class="card" id="configuration"><h2>Configuration</h2>{}
<details><summary>{} settings with their default</summary>{}</details></section>
)",
      given.empty() ? R"(<p class="note">All settings have their defaults.</p>)" : table(given),
      defaults, table(settings_rows(run.settings, true)));
}

std::string environment_html(const RunRecord& run) {
  if (run.environment.empty()) return {};
  constexpr std::array<std::string_view, 9> kFirst{
      "command",    "source revision", "lockstep, version", "lockstep, libtorch",
      "host, name", "processor, name", "processor, cores",  "memory, total",
      "driver"};
  std::string first;
  std::string others;
  for (const auto& [name, value] : run.environment) {
    if (name == "format" || name == "version") continue;
    const bool is_first =
        std::ranges::find(kFirst, name) != kFirst.end() || name.starts_with("devices");
    (is_first ? first : others) += row(escaped(name), value);
  }
  return fmt::format(
      R"(<section class="card tall" id="environment"><h2>Environment</h2>{}<details><summary>More facts</summary>{}</details></section>
)",
      table(first), table(others));
}

std::string sample_record_html(const RunRecord& run, const RunFigures& figures) {
  const auto steps = run.metrics.last_step();
  if (steps == 0 || figures.units_per_step <= 0) return {};
  const double units = figures.units_per_step * static_cast<double>(steps);
  std::string rows = row("data", run.data);
  rows += row(figures.unit + " per step", grouped(std::llround(figures.units_per_step)));
  const double context = figures.unit == "tokens" ? std::atof(run.setting("context").c_str()) : 1;
  if (context > 1)
    rows += row("samples per step", grouped(std::llround(figures.units_per_step / context)));
  rows += row("steps", grouped(steps));
  rows += row("all " + figures.unit, grouped(std::llround(units)));
  if (const auto epoch = run.metrics.train.last("epoch")) {
    rows += row("passes over the data completed", grouped(std::llround(*epoch)));
  }
  rows += row("seed of the order", run.setting("seed"));
  return fmt::format(
      R"(<section class="card" id="sample-record"><h2>Sample record</h2><p class="note">Each pass visits every sample once; the order follows from the seed.</p>{}</section>
)",
      table(rows));
}

}  // namespace lockstep
