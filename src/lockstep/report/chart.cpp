// The form of a chart for a page.
#include "lockstep/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/report/chart_frame_internal.h"

namespace lockstep {
namespace {

// The padding of .stage: above the picture, and for the labels and the title of the x axis.
constexpr double kTop = 10;
constexpr double kBottom = 40;

double last_value(const ChartSeries& series) {
  const auto last = std::find_if(series.points.rbegin(), series.points.rend(),
                                 [](const CurvePoint& point) { return std::isfinite(point.mean); });
  return last == series.points.rend() ? std::nan("") : last->mean;
}

std::string legend_html(const Chart& chart) {
  std::string html;
  for (const auto& series : chart.series) {
    html += fmt::format(R"(<span class="key"><i class="swatch{} c{}"></i>{} <b>{}</b></span>)",
                        series.style == LineStyle::faint    ? " faint"
                        : series.style == LineStyle::dashed ? " dashed"
                                                            : "",
                        series.color, escaped(series.name),
                        escaped(figure_text(last_value(series), chart.y.unit)));
  }
  return html;
}

// Every second label is dropped where the chart is narrow.
std::string ticks_svg(const Chart& chart, const ChartFrame& frame, double height) {
  std::string svg;
  for (const double value : frame.y.ticks.at) {
    const double y = height * (1 - frame.y(value));
    svg += fmt::format(
        R"(<line class="rule" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/><text class="ty" x="-8" y="{1:.1f}">{2}</text>)",
        y, y + 4, escaped(tick_text(value, frame.y.ticks.step, chart.y.unit)));
  }
  int count = 0;
  for (const double value : frame.x.ticks.at) {
    const double x = 100 * frame.x(value);
    const auto anchor = x < 3 ? " first" : x > 97 ? " last" : "";
    svg += fmt::format(
        R"(<line class="notch" x1="{0:.2f}%" x2="{0:.2f}%" y1="{1:.0f}" y2="{2:.0f}"/><text class="tx{3}{4}" x="{0:.2f}%" y="{5:.0f}">{6}</text>)",
        x, height, height + 4, anchor, ++count % 2 == 0 ? " even" : "", height + 17,
        escaped(tick_text(value, frame.x.ticks.step, chart.x.unit)));
  }
  return svg;
}

std::string points_svg(const Chart& chart, const ChartFrame& frame, double height) {
  std::string svg;
  for (const auto& series : chart.series) {
    if (series.style != LineStyle::points && series.points.size() > 1) continue;
    for (const auto& point : series.points) {
      if (!std::isfinite(point.mean)) continue;
      svg += fmt::format(R"(<circle class="c{}" cx="{:.2f}%" cy="{:.1f}" r="3.5"/>)", series.color,
                         100 * frame.x(point.x), height * (1 - frame.y(point.mean)));
    }
  }
  return svg;
}

std::string marks_svg(const Chart& chart, const ChartFrame& frame, double height) {
  std::string svg;
  for (const auto& mark : chart.marks) {
    const double x = 100 * frame.x(mark.x);
    if (!(x >= 0 && x <= 100)) continue;
    svg += fmt::format(
        R"(<line class="mark {}" x1="{:.2f}%" x2="{:.2f}%" y2="{:.0f}"><title>{}</title></line>)",
        mark.css_class, x, x, height, escaped(mark.text));
  }
  return svg;
}

// A JSON string that is also safe inside a script element.
std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\' || letter == '<' ||
        static_cast<unsigned char>(letter) < 0x20) {
      json += fmt::format("\\u{:04x}", static_cast<int>(letter));
    } else {
      json += letter;
    }
  }
  return json + '"';
}

// Six significant digits: more than the picture shows, less than a double needs.
void append_number(std::string& json, double value) {
  if (!json.empty() && json.back() != '[') json += ',';
  json += std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

template <typename Field>
std::string numbers(const ChartSeries& series, Field field) {
  std::string json = "[";
  for (const auto& point : series.points) append_number(json, point.*field);
  return json + "]";
}

std::string unit_name(Unit unit) {
  constexpr const char* kNames[] = {"plain", "count", "fraction",   "seconds",     "duration",
                                    "bytes", "rate",  "count_rate", "milliseconds"};
  return kNames[static_cast<std::size_t>(unit)];
}

std::string data_json(const Chart& chart) {
  std::string json = fmt::format(R"({{"x":"{}","xt":{},"y":"{}","log":{},"zero":{},"series":[)",
                                 unit_name(chart.x.unit), json_string(chart.x.title),
                                 unit_name(chart.y.unit), chart.y.logarithmic, chart.y.from_zero);
  for (const auto& series : chart.series) {
    if (json.back() != '[') json += ',';
    json += fmt::format(R"({{"n":{},"c":{},"x":{},"y":{})", json_string(series.name), series.color,
                        numbers(series, &CurvePoint::x), numbers(series, &CurvePoint::mean));
    if (std::ranges::any_of(series.points,
                            [](const CurvePoint& point) { return point.low < point.high; })) {
      json += fmt::format(R"(,"lo":{},"hi":{})", numbers(series, &CurvePoint::low),
                          numbers(series, &CurvePoint::high));
    }
    json += fmt::format(R"(,"p":{}}})", series.style == LineStyle::points);
  }
  return json + "]}";
}

std::string description(const Chart& chart) {
  std::string text = chart.title + ":";
  for (const auto& series : chart.series) {
    text += fmt::format(" {} {},", series.name, figure_text(last_value(series), chart.y.unit));
  }
  text.pop_back();
  return escaped(text);
}

}  // namespace

std::string chart_html(const Chart& chart) {
  if (!has_values(chart)) return {};
  const double height = chart.height - kTop - kBottom;
  const auto frame = frame_of(chart, 6, static_cast<int>(height / 44));
  return fmt::format(
      R"(<figure class="chart" id="{id}" data-h="{height:.0f}">
<figcaption><h3>{title}</h3>{note}<div class="legend">{legend}</div></figcaption>
<div class="stage"><svg class="plot" width="100%" height="{height:.0f}" overflow="visible" role="img" aria-label="{aria}">
<g class="ticks">{ticks}</g>
<svg class="curves" width="100%" height="{height:.0f}" viewBox="0 0 1000 1000" preserveAspectRatio="none">{curves}</svg>
<g class="points">{points}</g>
<g class="marks">{marks}</g>
<text class="title" x="100%" y="{below:.0f}">{x_title}</text>
</svg></div>
<script type="application/json">{data}</script>
</figure>
)",
      fmt::arg("id", chart.id), fmt::arg("title", escaped(chart.title)),
      fmt::arg("note", chart.note.empty() ? "" : fmt::format("<p>{}</p>", escaped(chart.note))),
      fmt::arg("legend", legend_html(chart)), fmt::arg("aria", description(chart)),
      fmt::arg("height", height), fmt::arg("ticks", ticks_svg(chart, frame, height)),
      fmt::arg("curves", curves_svg(chart, frame)),
      fmt::arg("points", points_svg(chart, frame, height)),
      fmt::arg("marks", marks_svg(chart, frame, height)), fmt::arg("below", height + 33),
      fmt::arg("x_title", escaped(chart.x.title)), fmt::arg("data", data_json(chart)));
}

}  // namespace lockstep
