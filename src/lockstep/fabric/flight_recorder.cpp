#include "lockstep/fabric/flight_recorder.h"

#include <time.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

FlightRecorder::Clock::time_point FlightRecorder::Clock::now() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

void FlightRecorder::enter(std::uint64_t number, const CallDescriptor& call) noexcept {
  entries_[number % kCalls] = {number, call, Clock::now(), {}};
}

void FlightRecorder::complete(std::uint64_t number) noexcept {
  auto& entry = entries_[number % kCalls];
  if (entry.number == number) entry.completed = Clock::now();
}

std::string FlightRecorder::to_json(int global_rank, const std::string& group,
                                    const std::string& cause) const {
  const auto now = Clock::now();
  const auto milliseconds = [](Clock::duration span) {
    return std::chrono::duration<double, std::milli>(span).count();
  };
  std::vector<Entry> calls;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(calls),
               [](const Entry& entry) { return entry.number != 0; });
  std::sort(calls.begin(), calls.end(),
            [](const Entry& a, const Entry& b) { return a.number < b.number; });
  auto list = nlohmann::ordered_json::array();
  for (const auto& entry : calls) {
    const bool done = entry.completed != Clock::time_point{};
    nlohmann::ordered_json item{{"number", entry.number},
                                {"call", to_string(entry.call)},
                                {"entered_ms_ago", milliseconds(now - entry.entered)},
                                {"state", done ? "complete" : "entered"}};
    if (done) item["took_ms"] = milliseconds(entry.completed - entry.entered);
    list.push_back(std::move(item));
  }
  const nlohmann::ordered_json record{{"format", "lockstep-flight-record"},
                                      {"version", 1},
                                      {"rank", global_rank},
                                      {"group", group},
                                      {"cause", cause},
                                      {"calls", list}};
  return record.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
