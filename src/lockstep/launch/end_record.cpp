#include "lockstep/launch/end_record.h"

#include <fmt/format.h>

#include <ctime>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// "2026-11-15T18:20:51.123Z"; null for a time that is not set.
Json time_text(RankOutcome::Time time) {
  if (time == RankOutcome::Time{}) return nullptr;
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = milliseconds / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     milliseconds % 1000);
}

Json rank_json(const RankOutcome& rank) {
  Json json{{"rank", rank.rank}, {"node", rank.node}, {"host", rank.host}};
  json["raw_status"] = rank.status ? Json(rank.status->raw()) : Json(nullptr);
  const auto code = rank.status ? rank.status->exit_code() : std::nullopt;
  const auto signal = rank.status ? rank.status->signal() : std::nullopt;
  json["exit_code"] = code ? Json(*code) : Json(nullptr);
  json["signal"] = signal ? Json(signal_name(*signal)) : Json(nullptr);
  json["told_to_end"] = rank.told_to_end;
  json["started"] = time_text(rank.started);
  json["ended"] = time_text(rank.ended);
  if (rank.start_failure) json["start_errno"] = rank.start_failure->error_number;
  if (!rank.note.empty()) json["note"] = rank.note;
  if (!rank.where.empty()) json["where"] = rank.where;
  json["log"] = rank.log_path;
  return json;
}

}  // namespace

std::string end_record(std::span<const RankOutcome> ranks, const EndFacts& facts) {
  Json json{{"format", "lockstep-end"}, {"version", 1}};
  json["cause"] = describe(facts.cause);
  json["exit_code"] = facts.exit_code;
  json["launcher_signal"] = facts.signal == 0 ? Json(nullptr) : Json(signal_name(facts.signal));
  json["reason"] = facts.reason.empty() ? Json(nullptr) : Json(facts.reason);
  json["restarts"] = facts.restarts;
  json["max_restarts"] = facts.max_restarts;
  json["started"] = time_text(facts.started);
  json["ended"] = time_text(facts.ended);
  const auto culprit = find_culprit(ranks);
  json["culprit"] = nullptr;
  if (culprit) {
    json["culprit"] = rank_json(ranks[*culprit]);
    const auto& uncaught = ranks[*culprit].uncaught;
    json["culprit"]["uncaught"] = uncaught.empty() ? Json(nullptr) : Json(uncaught);
    json["culprit"]["last_lines"] = ranks[*culprit].last_lines;
    json["culprit"]["stack"] = ranks[*culprit].stack;
  }
  json["ranks"] = Json::array();
  for (const auto& rank : ranks) json["ranks"].push_back(rank_json(rank));
  // JSON must be UTF-8; the output of a program may be anything.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
