// The fixed texts of every page.
#pragma once

#include <string_view>

namespace lockstep {

[[nodiscard]] std::string_view page_style();
/// Values under the pointer, zoom, and a reload that keeps the position. Pages are complete without
/// it.
[[nodiscard]] std::string_view page_script();

}  // namespace lockstep
