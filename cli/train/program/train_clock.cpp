#include "cli/train/program/train_clock.h"

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {

std::string TrainClock::state_json() const { return nlohmann::json{{"seconds", seconds}}.dump(); }

void TrainClock::load_state_json(std::string_view json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_object() || !value.contains("seconds") || !value["seconds"].is_number()) {
    throw UsageError(
        "the checkpoint has no valid training time (part clock): is it of another program?");
  }
  seconds = value["seconds"];
}

}  // namespace lockstep::cli
