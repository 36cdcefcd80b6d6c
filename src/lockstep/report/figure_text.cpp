#include "lockstep/report/figure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

struct Prefix {
  double factor;
  std::string_view name;
};

constexpr std::array<Prefix, 4> kDecimal{{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
constexpr std::array<Prefix, 4> kBinary{
    {{0x1p40, " TiB"}, {0x1p30, " GiB"}, {0x1p20, " MiB"}, {0x1p10, " KiB"}}};
constexpr std::array<Prefix, 3> kRates{{{1e9, " GB/s"}, {1e6, " MB/s"}, {1e3, " kB/s"}}};
constexpr std::array<Prefix, 4> kTime{{{1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}, {1e-9, " ns"}}};

// "1.5", "150", "0.0031": trailing zeros removed.
std::string digits(double value, int significant) {
  if (value == 0) return "0";
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  if (before < -3 || before > 12)
    return fmt::format("{:.{}e}", value, std::min(significant, 3) - 1);
  auto text = fmt::format("{:.{}f}", value, std::max(0, significant - before));
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

template <std::size_t size>
std::string scaled(double value, const std::array<Prefix, size>& prefixes, std::string_view small,
                   int significant) {
  // The margin keeps 999.96 from becoming "1000" with the smaller prefix.
  const auto fits = [&](const Prefix& prefix) { return std::abs(value) >= 0.9995 * prefix.factor; };
  const auto found = std::ranges::find_if(prefixes, fits);
  if (found == prefixes.end()) return digits(value, significant) + std::string(small);
  return digits(value / found->factor, significant) + std::string(found->name);
}

std::string duration_text(double seconds) {
  if (seconds < 1) return scaled(seconds, kTime, " s", 3);
  if (seconds < 9.95) return digits(seconds, 2) + " s";
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) {
    return whole % 60 == 0 ? fmt::format("{} min", whole / 60)
                           : fmt::format("{} min {} s", whole / 60, whole % 60);
  }
  const auto minutes = std::llround(seconds / 60);
  if (minutes < 48 * 60) {
    return minutes % 60 == 0 ? fmt::format("{} h", minutes / 60)
                             : fmt::format("{} h {} min", minutes / 60, minutes % 60);
  }
  const auto hours = std::llround(seconds / 3600);
  return hours % 24 == 0 ? fmt::format("{} d", hours / 24)
                         : fmt::format("{} d {} h", hours / 24, hours % 24);
}

// One decimal, two below 1 %.
std::string percent_text(double fraction) {
  const double percent = 100 * fraction;
  auto text = fmt::format("{:.{}f}", percent, std::abs(percent) >= 0.995 ? 1 : 2);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return (text == "-0" ? "0" : text) + " %";
}

std::string with_unit(double value, Unit unit, int significant) {
  switch (unit) {
    case Unit::plain:
      return digits(value, std::abs(value) < 0.1 ? std::min(significant, 3) : significant + 1);
    case Unit::count:
      return scaled(value, kDecimal, "", significant);
    case Unit::fraction:
      return percent_text(value);
    case Unit::seconds:
      return scaled(value, kTime, " s", significant);
    case Unit::duration:
      return duration_text(value);
    case Unit::bytes:
      return scaled(value, kBinary, " B", 3);
    case Unit::bytes_rate:
      return scaled(value, kRates, " B/s", 3);
    case Unit::count_rate:
      return scaled(value, kDecimal, "", 3) + "/s";
    case Unit::milliseconds:
      return scaled(value / 1e3, kTime, " s", significant);
  }
  return {};
}

// The length of the valid UTF-8 sequence at `at`; 0 if there is none.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t index) { return static_cast<unsigned char>(text[index]); };
  const auto first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 && first < 0xF5   ? 4
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xC2 && first < 0xE0 ? 2
                                                             : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (std::size_t index = at + 1; index < at + length; ++index) {
    if ((byte(index) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string figure_text(double value, Unit unit) {
  return std::isfinite(value) ? with_unit(value, unit, unit == Unit::plain ? 4 : 3) : "–";
}

std::string tick_text(double value, double step, Unit unit) {
  if (std::abs(value) < step * 1e-9) value = 0;
  if (value == 0) return "0";
  if (unit == Unit::duration || unit == Unit::fraction) return with_unit(value, unit, 3);
  // As few digits as give the value exactly.
  int significant = 1;
  const auto decade = std::floor(std::log10(std::abs(value)));
  for (; significant < 7; ++significant) {
    const double unit_of_last = std::pow(10, decade - significant + 1);
    if (std::abs(std::round(value / unit_of_last) * unit_of_last - value) < 0.01 * step) break;
  }
  return unit == Unit::plain ? digits(value, significant) : with_unit(value, unit, significant);
}

std::string grouped(long long value) {
  auto text = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (auto at = text.size(); at > first + 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string escaped(std::string_view text) {
  std::string result;
  result.reserve(text.size() + 16);
  for (std::size_t at = 0; at < text.size();) {
    const auto length = sequence_length(text, at);
    const char letter = text[at];
    const bool is_control = length == 1 && static_cast<unsigned char>(letter) < 0x20 &&
                            letter != '\n' && letter != '\t';
    if (length == 0 || is_control) {
      result += "\xEF\xBF\xBD";  // the replacement character
      ++at;
      continue;
    }
    switch (letter) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result.append(text, at, length);
    }
    at += length;
  }
  return result;
}

}  // namespace lockstep
