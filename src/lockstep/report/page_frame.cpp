#include <fmt/format.h>

#include "lockstep/report/page_parts_internal.h"
#include "lockstep/report/page_style_internal.h"

namespace lockstep {

std::string whole_page(const std::string& title, const std::string& body, double reload_after) {
  // With scripts, the script reloads and keeps the position.
  const auto reload =
      reload_after > 0
          ? fmt::format(R"(<noscript><meta http-equiv="refresh" content="{:.0f}"></noscript>
)",
                        reload_after)
          : std::string();
  return fmt::format(
      R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{}</title>
<link rel="icon" href="data:,">
{}<style>{}{}</style></head>
<body><main>
{}</main><script>{}</script></body></html>
)",
      escaped(title), reload, chart_style(), page_style(), body, page_script());
}

}  // namespace lockstep
