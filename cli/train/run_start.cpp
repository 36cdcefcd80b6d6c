#include "cli/train/run_start.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {

using Json = nlohmann::ordered_json;

namespace {

// "300 steps" for "300st".
std::string words_of(const std::string& length) {
  return in_words(parse_train_length("the length of the run", length));
}

}  // namespace

std::string to_json(const Finished& finished) {
  return Json{{"length", finished.length},
              {"steps", finished.steps},
              {"why", finished.why},
              {"gave_up", finished.gave_up}}
             .dump(2) +
         "\n";
}

std::optional<Finished> try_read_finished(const std::string& folder) {
  std::ifstream file(folder + "/finished.json");
  if (!file) return std::nullopt;
  try {
    const auto json = Json::parse(file);
    return Finished{json.at("length"), json.at("steps"), json.at("why"), json.at("gave_up")};
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("{}/finished.json is invalid: {}", folder, error.what()));
  }
}

RunStart choose_start(const StartRequest& request,
                      const std::function<FolderFacts(const std::string&)>& look) {
  auto folder = request.folder;
  auto facts = look(folder);
  if (request.fresh) {
    for (int number = 2; facts.exists; ++number) {
      folder = fmt::format("{}-{}", request.folder, number);
      facts = look(folder);
    }
    return {folder, StartKind::fresh, "--fresh"};
  }
  if (facts.exists && !facts.is_run) {
    throw UsageError(fmt::format(
        "{} exists and is not a run of `lockstep train`: name another folder with --run, or give "
        "--fresh",
        folder));
  }
  if (!facts.exists) {
    if (request.must_resume) {
      throw UsageError(fmt::format(
          "--resume required, but {} does not exist: leave --resume out to start a new run",
          folder));
    }
    return {folder, StartKind::fresh, "the folder does not exist"};
  }
  if (facts.done_at && (!request.length || request.length == facts.done_at)) {
    return {folder, StartKind::finished, fmt::format("its length is {}", words_of(*facts.done_at))};
  }
  if (facts.done_at) {
    return {folder, StartKind::resume,
            fmt::format("it has finished {}; the new length is {}", words_of(*facts.done_at),
                        words_of(*request.length))};
  }
  return {folder, StartKind::resume, "it is unfinished"};
}

FolderFacts look_at(const std::string& folder) {
  FolderFacts facts{.exists = std::filesystem::exists(folder),
                    .is_run = std::filesystem::exists(folder + "/config.json")};
  if (const auto finished = try_read_finished(folder)) facts.done_at = finished->length;
  return facts;
}

}  // namespace lockstep::cli
