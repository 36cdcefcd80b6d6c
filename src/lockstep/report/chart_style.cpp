// The colors and lines of charts. Both palettes keep their order of hue, so that a curve has the
// same name for its color in light and dark; neighbours differ in lightness too, for readers with
// a color vision deficiency.
#include <fmt/format.h>

#include "lockstep/report/chart.h"

namespace lockstep {

std::string chart_style() {
  return R"css(
:root{color-scheme:light dark;
--paper:#ffffff;--ink:#1a1f29;--soft:#5b6675;--faint:#e3e7ed;--grid:#e9edf2;
--c1:#1f6fd6;--c2:#d9480f;--c3:#0b8a6a;--c4:#9c36b5;--c5:#c98a00;--c6:#0f8aa3;--c7:#c2255c;--c8:#64707f;
--p0:#e0a100;--p1:#74aef2;--p2:#2f6fcb;--p3:#d9480f;--p4:#1a9e7b;--p5:#a66bd6;--p6:#d6558a;--p7:#a9b2bf;
--h0:#eef2f7;--h1:#fdebc8;--h2:#fbd08a;--h3:#f7a95a;--h4:#ec7a3c;--h5:#cf4a2a;--h6:#9c1f24}
@media (prefers-color-scheme:dark){:root{
--paper:#161b22;--ink:#e8edf3;--soft:#97a3b3;--faint:#2b333e;--grid:#262e39;
--c1:#5ea6ff;--c2:#ff8a4c;--c3:#3fd0a4;--c4:#d38bf0;--c5:#f2c14e;--c6:#4fc6de;--c7:#ff7fab;--c8:#9aa7b6;
--p0:#f2c14e;--p1:#9cc9ff;--p2:#4a8fe8;--p3:#ff8a4c;--p4:#3fd0a4;--p5:#bf93ec;--p6:#f286b2;--p7:#6b7787;
--h0:#212934;--h1:#4a3a22;--h2:#7a5424;--h3:#b0702a;--h4:#e08a3a;--h5:#ff9d5c;--h6:#ffd0a6}}
.paper{fill:var(--paper)}
.rule{stroke:var(--grid)}.notch{stroke:var(--soft)}
.ty,.tx,.title{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
.ty,.title{text-anchor:end}.tx{text-anchor:middle}.tx.first{text-anchor:start}.tx.last{text-anchor:end}
.heading{fill:var(--ink);font-size:15px;font-weight:600}
.name{font-weight:600;fill:var(--c)}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;vector-effect:non-scaling-stroke}
.line.faint{stroke-width:1;opacity:.45}.line.thin{stroke-width:1.5}
.line.dashed{stroke-dasharray:5 4}
.band{fill:var(--c);opacity:.22;stroke:none}
circle{fill:var(--c)}
.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c8{--c:var(--c8)}
)css";
}

std::string svg_file(double width, double height, const std::string& content) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" font-family="system-ui, sans-serif" font-size="12">
<style>{2}</style>
<rect class="paper" width="{0:.0f}" height="{1:.0f}"/>
{3}</svg>
)",
      width, height, chart_style(), content);
}

}  // namespace lockstep
