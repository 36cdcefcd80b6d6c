// The time line of a run: its sessions, evaluations, saves, restarts and faults in wall time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/report/axis_ticks.h"
#include "lockstep/report/page_parts_internal.h"

namespace lockstep {
namespace {

struct Lane {
  std::string name = {};
  std::string svg = {};
  std::string count = {};
};

class TimeLine {
 public:
  TimeLine(double begin, double end) : begin_(begin), width_(std::max(end - begin, 0.01)) {}

  [[nodiscard]] std::string span(double from, double to, std::string_view css_class,
                                 const std::string& title) const {
    return fmt::format(
        R"(<rect class="{}" x="{:.2f}%" width="{:.2f}%" height="100%" rx="2"><title>{}</title></rect>)",
        css_class, at(from), std::max(at(to) - at(from), 0.25), escaped(title));
  }
  [[nodiscard]] std::string moment(double time, std::string_view css_class,
                                   const std::string& title) const {
    return fmt::format(
        R"(<circle class="{}" cx="{:.2f}%" cy="50%" r="4.5"><title>{}</title></circle>)", css_class,
        at(time), escaped(title));
  }
  [[nodiscard]] double at(double time) const {
    return std::clamp(100 * (time - begin_) / width_, 0.0, 100.0);
  }
  [[nodiscard]] std::string scale() const {
    const auto ticks = linear_ticks(0, width_, 5, Unit::duration);
    std::string svg;
    int count = 0;
    for (const double value : ticks.at) {
      const double x = 100 * value / width_;
      const auto anchor = x < 3 ? " first" : x > 95 ? " last" : "";
      svg += fmt::format(
          R"(<line class="notch" x1="{0:.2f}%" x2="{0:.2f}%" y2="4"/><text class="tx{1}{2}" x="{0:.2f}%" y="17">{3}</text>)",
          x, anchor, ++count % 2 == 0 ? " even" : "",
          escaped(value == 0 ? "0" : figure_text(value, Unit::duration)));
    }
    return svg;
  }

 private:
  double begin_;
  double width_;
};

double number_of(const RunEvent& event, const std::string& name) {
  const auto found = event.numbers.find(name);
  return found == event.numbers.end() || std::isnan(found->second) ? 0 : found->second;
}

std::string text_of(const RunEvent& event, const std::string& name) {
  const auto found = event.texts.find(name);
  return found == event.texts.end() ? std::string() : found->second;
}

Lane session_lane(const RunMetrics& metrics, const TimeLine& line) {
  Lane lane{.name = "training"};
  int number = 0;
  for (const auto& session : metrics.sessions) {
    lane.svg += line.span(session.begin, session.end, number % 2 == 0 ? "s0" : "s1",
                          fmt::format("start {} at {}: {}", number + 1, date_text(session.begin),
                                      figure_text(session.end - session.begin, Unit::duration)));
    ++number;
  }
  lane.count = fmt::format("{} start{}", number, number == 1 ? "" : "s");
  return lane;
}

template <typename Draw>
Lane event_lane(const RunMetrics& metrics, std::string name, Draw draw) {
  Lane lane{.name = std::move(name)};
  int count = 0;
  for (const auto& event : metrics.events) {
    const std::string svg = draw(event);
    if (svg.empty()) continue;
    lane.svg += svg;
    ++count;
  }
  lane.count = count == 0 ? "" : std::to_string(count);
  return lane;
}

std::vector<Lane> lanes_of(const RunMetrics& metrics, const TimeLine& line) {
  std::vector<Lane> lanes{session_lane(metrics, line)};
  lanes.push_back(event_lane(metrics, "evaluations", [&](const RunEvent& event) {
    if (event.event != "evaluation") return std::string();
    const double seconds = number_of(event, "seconds");
    return line.span(event.time - seconds, event.time, "p5",
                     fmt::format("step {}: validation loss {:.4f}, {}", grouped(event.step),
                                 number_of(event, "loss"), figure_text(seconds, Unit::duration)));
  }));
  lanes.push_back(event_lane(metrics, "checkpoints", [&](const RunEvent& event) {
    if (event.event == "save_failed") {
      return line.moment(event.time, "bad", "not saved: " + text_of(event, "text"));
    }
    if (event.event != "save") return std::string();
    const double seconds = number_of(event, "seconds");
    return line.span(event.time - seconds, event.time, "p4",
                     fmt::format("step {} saved in {}, training stalled for {}",
                                 grouped(event.step), figure_text(seconds, Unit::duration),
                                 figure_text(number_of(event, "stall_ms"), Unit::milliseconds)));
  }));
  lanes.push_back(event_lane(metrics, "faults", [&](const RunEvent& event) {
    if (event.event == "fault") return line.moment(event.time, "bad", text_of(event, "text"));
    if (event.event == "restart") {
      return line.moment(event.time, "warn",
                         fmt::format("restarted after step {}",
                                     grouped(static_cast<long long>(number_of(event, "after")))));
    }
    if (event.event == "stop") return line.moment(event.time, "warn", text_of(event, "text"));
    return std::string();
  }));
  // Old runs have evaluations as rows only.
  if (lanes[1].svg.empty()) {
    for (std::size_t row = 0; row < metrics.eval.time.size(); ++row) {
      const double time = metrics.eval.time[row];
      lanes[1].svg += line.span(
          time, time, "p5", fmt::format("step {}", grouped(std::llround(metrics.eval.step[row]))));
    }
    if (!metrics.eval.time.empty()) lanes[1].count = std::to_string(metrics.eval.time.size());
  }
  return lanes;
}

}  // namespace

std::string timeline_html(const RunRecord& run, const RunFigures& figures) {
  const auto& metrics = run.metrics;
  if (metrics.sessions.empty() || !(figures.end > figures.begin)) return {};
  const TimeLine line(figures.begin, figures.end);
  std::string rows;
  for (const auto& lane : lanes_of(metrics, line)) {
    if (lane.svg.empty()) continue;
    rows += fmt::format(
        R"(<div class="row"><span class="label">{}</span><svg class="bar lane" height="18" width="100%">{}</svg><span class="much">{}</span></div>
)",
        lane.name, lane.svg, lane.count);
  }
  return fmt::format(
      R"(<figure class="rows" id="time-line"><figcaption><h3>Time line</h3><p>Since {}. Point at a mark for its step and duration.</p></figcaption>
{}<div class="row scale"><span class="label"></span><svg class="axis" height="22" width="100%" overflow="visible">{}</svg><span class="much"></span></div></figure>
)",
      date_text(figures.begin), rows, line.scale());
}

}  // namespace lockstep
