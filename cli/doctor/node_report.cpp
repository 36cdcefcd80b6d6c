#include "cli/doctor/node_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "lockstep/base/json.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/rendezvous/peer_text.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const std::vector<CheckLine>& lines) {
  auto json = Json::array();
  for (const auto& line : lines) {
    json.push_back({{"name", line.name},
                    {"verdict", to_string(line.verdict)},
                    {"found", line.found},
                    {"fix", line.fix.empty() ? Json(nullptr) : Json(line.fix)}});
  }
  return json;
}

Json to_json(const DoctorReport& report) {
  return {{"host", report.node.host},
          {"ranks", report.ranks},
          {"checks", to_json(report.lines)},
          {"compared", report.node.values}};
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Verdict verdict_of(const std::string& word) {
  for (const auto verdict : {Verdict::green, Verdict::yellow}) {
    if (word == to_string(verdict)) return verdict;
  }
  return Verdict::red;
}

std::vector<CheckLine> differences(const std::vector<DoctorReport>& reports) {
  std::vector<NodeValues> nodes;
  for (const auto& report : reports) {
    if (!report.node.values.empty()) nodes.push_back(report.node);
  }
  return compare_nodes(nodes);
}

std::string lines_text(const std::vector<CheckLine>& lines, bool color) {
  std::string text;
  for (const auto& line : lines) {
    constexpr std::array kColors{32, 33, 31};
    auto word = fmt::format("{:<6}", to_string(line.verdict));
    if (color) {
      word =
          fmt::format("\x1b[{}m{}\x1b[0m", kColors[static_cast<std::size_t>(line.verdict)], word);
    }
    text += fmt::format("  {}  {:<12}  {}\n", word, line.name, printable(line.found, false));
    if (!line.fix.empty()) text += fmt::format("  {:<6}  {:<12}  fix: {}\n", "", "", line.fix);
  }
  return text;
}

}  // namespace

DoctorReport report_of(const DoctorFacts& facts) {
  return {.node = compared_values(facts), .ranks = facts.ranks, .lines = check_node(facts)};
}

std::string to_text(const DoctorReport& report) { return dump(to_json(report), -1); }

DoctorReport report_from_text(const std::string& text) {
  return read_peer_text("a node's report", [&] {
    const auto json = Json::parse(text);
    DoctorReport report;
    report.node.host = json.at("host");
    report.node.values = json.at("compared").get<std::vector<std::string>>();
    report.ranks = json.at("ranks");
    for (const auto& line : json.at("checks")) {
      report.lines.push_back({line.at("name"), verdict_of(line.at("verdict")), line.at("found"),
                              line.at("fix").is_null() ? "" : line.at("fix").get<std::string>()});
    }
    return report;
  });
}

Verdict worst_of(const std::vector<DoctorReport>& reports) {
  auto worst = worst_of(differences(reports));
  for (const auto& report : reports) worst = std::max(worst, worst_of(report.lines));
  return worst;
}

std::string doctor_text(const std::vector<DoctorReport>& reports, double seconds, bool color) {
  std::string text;
  std::array<int, 3> counts{};
  const auto add = [&](const std::string& title, const std::vector<CheckLine>& lines) {
    if (lines.empty()) return;
    text += title + '\n' + lines_text(lines, color);
    for (const auto& line : lines) ++counts[static_cast<std::size_t>(line.verdict)];
  };
  for (const auto& report : reports) {
    add(fmt::format("{}, {} rank{}", report.node.host, report.ranks, report.ranks == 1 ? "" : "s"),
        report.lines);
  }
  add("differences between nodes", differences(reports));
  return text + fmt::format("{} red, {} yellow, {} green, in {:.1f} s\n", counts[2], counts[1],
                            counts[0], seconds);
}

std::string doctor_json(const std::vector<DoctorReport>& reports, double seconds) {
  Json json{{"format", "lockstep-doctor"},
            {"version", 1},
            {"verdict", to_string(worst_of(reports))},
            {"seconds", seconds},
            {"nodes", Json::array()},
            {"differences", to_json(differences(reports))}};
  for (const auto& report : reports) {
    auto node = to_json(report);
    node.erase("compared");
    json["nodes"].push_back(std::move(node));
  }
  return dump(json, 2) + "\n";
}

}  // namespace lockstep::cli
