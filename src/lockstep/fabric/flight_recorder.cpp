#include "lockstep/fabric/flight_recorder.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

std::string FlightRecorder::to_json(int global_rank, const std::string& group,
                                    const std::string& cause) const {
  const auto now = ticks();
  const auto milliseconds = [rate = TickAnchor::now().nanoseconds_per_tick()](Ticks from,
                                                                              Ticks to) {
    return static_cast<double>(static_cast<std::int64_t>(to - from)) * rate / 1e6;
  };
  std::vector<Entry> calls;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(calls),
               [](const Entry& entry) { return entry.number != 0; });
  std::sort(calls.begin(), calls.end(),
            [](const Entry& a, const Entry& b) { return a.number < b.number; });
  auto list = nlohmann::ordered_json::array();
  for (const auto& entry : calls) {
    const bool done = entry.completed != 0;
    nlohmann::ordered_json item{{"number", entry.number},
                                {"call", to_string(entry.call)},
                                {"entered_ms_ago", milliseconds(entry.entered, now)},
                                {"state", done ? "complete" : "entered"}};
    if (done) item["took_ms"] = milliseconds(entry.entered, entry.completed);
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
