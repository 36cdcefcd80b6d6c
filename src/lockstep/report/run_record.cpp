#include "lockstep/report/run_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/json.h"
#include "lockstep/report/figure_text.h"
#include "lockstep/trace/run_pages.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Null for a file that does not exist or is not JSON.
Json read_json(const fs::path& path) {
  std::ifstream file(path);
  if (!file) return nullptr;
  return Json::parse(file, nullptr, /*allow_exceptions=*/false);
}

std::string text_in(const Json& json, const char* name) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_in(const Json& json, const char* name, double otherwise = 0) {
  const auto found = json.is_object() ? json.find(name) : json.end();
  return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
}

int integer_in(const Json& json, const char* name) {
  return static_cast<int>(number_in(json, name));
}

std::vector<std::string> lines_in(const Json& json, const char* name) {
  std::vector<std::string> lines;
  if (!json.is_object() || !json.contains(name)) return lines;
  for (const auto& line : json[name]) {
    if (line.is_string()) lines.push_back(line.get<std::string>());
  }
  return lines;
}

RankEnd rank_end(const Json& json) {
  RankEnd rank{.rank = integer_in(json, "rank"), .host = text_in(json, "host")};
  const auto signal = text_in(json, "signal");
  const bool has_code = json.contains("exit_code") && json["exit_code"].is_number();
  rank.how = !signal.empty() ? signal
             : has_code      ? fmt::format("exit code {}", integer_in(json, "exit_code"))
                             : "never started";
  rank.failed = !signal.empty() || !has_code || integer_in(json, "exit_code") != 0;
  rank.told_to_end = json.value("told_to_end", false);
  rank.note = text_in(json, "note");
  rank.where = text_in(json, "where");
  rank.log = text_in(json, "log");
  rank.uncaught = text_in(json, "uncaught");
  rank.last_lines = lines_in(json, "last_lines");
  rank.stack = lines_in(json, "stack");
  return rank;
}

std::optional<EndRecord> read_end(const fs::path& path) {
  const auto json = read_json(path);
  if (text_in(json, "format") != "lockstep-end") return std::nullopt;
  EndRecord end{.cause = text_in(json, "cause"),
                .exit_code = integer_in(json, "exit_code"),
                .signal = text_in(json, "launcher_signal"),
                .reason = text_in(json, "reason"),
                .restarts = integer_in(json, "restarts"),
                .started = text_in(json, "started"),
                .ended = text_in(json, "ended")};
  if (json.contains("culprit") && json["culprit"].is_object()) {
    end.culprit = rank_end(json["culprit"]);
  }
  if (json.contains("ranks")) {
    for (const auto& rank : json["ranks"]) end.ranks.push_back(rank_end(rank));
  }
  return end;
}

std::optional<FlightRecord> read_flight(const fs::path& path) {
  const auto json = read_json(path);
  if (text_in(json, "format") != "lockstep-flight-record") return std::nullopt;
  FlightRecord record{.rank = integer_in(json, "rank"),
                      .group = text_in(json, "group"),
                      .cause = text_in(json, "cause")};
  if (!json.contains("calls")) return record;
  for (const auto& call : json["calls"]) {
    record.calls.push_back({.number = static_cast<std::uint64_t>(number_in(call, "number")),
                            .call = text_in(call, "call"),
                            .is_complete = text_in(call, "state") == "complete",
                            .entered_ms_ago = number_in(call, "entered_ms_ago"),
                            .took_ms = number_in(call, "took_ms")});
  }
  return record;
}

LaunchRecord read_launch(const fs::path& folder, int number) {
  LaunchRecord launch{.number = number, .folder = folder.string()};
  launch.end = read_end(folder / "end.json");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with("flight-") || !name.ends_with(".json")) continue;
    if (auto flight = read_flight(entry.path())) launch.flights.push_back(*std::move(flight));
  }
  std::ranges::sort(launch.flights, {}, [](const FlightRecord& flight) {
    return std::pair(flight.group, flight.rank);
  });
  return launch;
}

std::vector<LaunchRecord> read_launches(const fs::path& folder) {
  std::vector<int> numbers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "launches", error)) {
    const int number = std::atoi(entry.path().filename().c_str());
    if (number > 0) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  std::vector<LaunchRecord> launches;
  for (const int number : numbers) {
    launches.push_back(read_launch(folder / "launches" / std::to_string(number), number));
  }
  if (launches.empty() && fs::exists(folder / "logs", error)) {
    launches.push_back(read_launch(folder, 1));
  }
  return launches;
}

// {"a": {"b": 1}} as ("a, b", "1"); keys are words with _.
void flatten(const Json& json, const std::string& name,
             std::vector<std::pair<std::string, std::string>>& rows) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      auto word = key;
      std::ranges::replace(word, '_', ' ');
      flatten(value, name.empty() ? word : name + ", " + word, rows);
    }
    return;
  }
  if (json.is_array() && std::ranges::none_of(json, [](const Json& item) {
        return item.is_object() || item.is_array();
      })) {
    std::string joined;
    for (const auto& item : json) {
      joined +=
          (joined.empty() ? "" : ", ") + (item.is_string() ? item.get<std::string>() : item.dump());
    }
    if (!joined.empty()) rows.emplace_back(name, joined);
    return;
  }
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i)
      flatten(json[i], fmt::format("{} {}", name, i), rows);
    return;
  }
  if (json.is_number_unsigned() && name.ends_with("bytes")) {
    // "memory, total bytes" is "memory, total" with a unit.
    const auto what = name.substr(0, name.find_last_not_of(" ,", name.size() - 6) + 1);
    rows.emplace_back(what, figure_text(json.get<double>(), Unit::bytes));
    return;
  }
  if (!json.is_null())
    rows.emplace_back(name, json.is_string() ? json.get<std::string>() : json.dump());
}

void read_configuration(const fs::path& path, RunRecord& run) {
  const auto json = read_json(path);
  run.model = text_in(json, "model");
  run.world = integer_in(json, "world");
  if (json.is_object() && json.contains("data")) run.data = text_in(json["data"], "name");
  if (!json.is_object() || !json.contains("settings")) return;
  for (const auto& [name, setting] : json["settings"].items()) {
    run.settings.push_back({name, text_in(setting, "value"), text_in(setting, "origin")});
  }
}

bool has_event(const RunMetrics& metrics, std::string_view name) {
  return !metrics.events.empty() && metrics.events.back().event == name;
}

RunOutcome outcome_of(const RunRecord& run, bool active) {
  if (active) return RunOutcome::running;
  if (!run.finished.empty()) return RunOutcome::finished;
  if (run.launches.empty()) {  // another launcher: only the program's own events are known
    if (has_event(run.metrics, "end")) return RunOutcome::finished;
    return has_event(run.metrics, "stop") ? RunOutcome::stopped : RunOutcome::killed;
  }
  const auto* end = run.last_end();
  if (!end) return RunOutcome::killed;
  // The ranks of `lockstep train` also end with exit code 0 after a signal; finished.json decides.
  if (end->cause == "finished") {
    return run.settings.empty() ? RunOutcome::finished : RunOutcome::stopped;
  }
  return end->cause == "signal" ? RunOutcome::stopped : RunOutcome::failed;
}

bool is_launcher_alive(const fs::path& launch) {
  try {
    return !RunPages::read((launch / RunPages::kFileName).string()).has_ended;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::string RunRecord::setting(std::string_view wanted) const {
  const auto found = std::ranges::find(settings, wanted, &RunSetting::name);
  return found == settings.end() ? std::string() : found->value;
}

const EndRecord* RunRecord::last_end() const {
  return launches.empty() || !launches.back().end ? nullptr : &*launches.back().end;
}

bool is_active(const std::string& folder) {
  // The lock of `lockstep train`.
  const FileDescriptor launch(::open((folder + "/launch.lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (launch && ::flock(launch.number(), LOCK_SH | LOCK_NB) != 0) return true;
  // The lock of the ranks, which is also held under other launchers.
  const FileDescriptor run(::open((folder + "/checkpoints/run.lock").c_str(), O_RDWR | O_CLOEXEC));
  struct ::flock all {};
  all.l_type = F_WRLCK;
  if (run && ::fcntl(run.number(), F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK) return true;
  return is_launcher_alive(folder);
}

RunRecord read_run(const std::string& folder, const RunMetrics& metrics, bool active) {
  RunRecord run{.folder = folder};
  std::error_code error;
  const fs::path path(folder);
  run.launches = read_launches(path);
  const bool is_run = !run.launches.empty() || fs::exists(path / "config.json", error) ||
                      fs::exists(path / "metrics.jsonl", error);
  if (!is_run) {
    throw UsageError(fmt::format(
        "{} is not the folder of a run: it has neither metrics.jsonl nor config.json nor logs. "
        "Name the folder that `lockstep train` or `lockstep run` printed",
        folder));
  }
  auto whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  run.name = whole.filename().string();
  read_configuration(path / "config.json", run);
  run.finished = text_in(read_json(path / "finished.json"), "why");
  flatten(read_json(path / "environment.json"), "", run.environment);
  run.metrics = metrics;
  for (const auto& event : metrics.events) {
    const auto world = event.numbers.find("world");
    if (event.event == "start" && world != event.numbers.end()) {
      run.world = static_cast<int>(world->second);
    }
  }
  run.outcome = outcome_of(run, active);
  return run;
}

}  // namespace lockstep
