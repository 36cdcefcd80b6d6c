// `lockstep report RUN [RUN …]`
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "cli/arguments.h"
#include "cli/report/live_report.h"
#include "cli/report/page_writer.h"
#include "cli/verb.h"
#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/base/whole_file.h"
#include "lockstep/report/comparison.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep report: write the page of a run, or compare several runs\n"
    "\n"
    "  lockstep report RUN [RUN ...] [options]\n"
    "\n"
    "RUN is the folder of a run of `lockstep train` or `lockstep run`. The launcher\n"
    "writes RUN/report.html during a run and at its end; this command writes it\n"
    "again from the same files. The page of several runs has their curves, the\n"
    "settings that differ, and the step at which their losses part.\n"
    "\n"
    "  -o, --output FILE  the page; default: RUN/report.html for one run,\n"
    "                     compare.html for several\n"
    "  --text             print to the terminal instead\n"
    "\n"
    "Examples\n"
    "  lockstep report runs/gpt\n"
    "  lockstep report --text runs/gpt\n"
    "  lockstep report runs/gpt runs/gpt-2 -o compare.html\n";

struct Request {
  std::vector<std::string> folders = {};
  std::string output = {};
  std::string follow = {};  // for LiveReport
  bool text = false;
  bool help = false;
};

Request read_request(const std::vector<std::string>& arguments) {
  Request request;
  Arguments declared("report", request.help);
  declared.option("folders", request.folders);
  declared.option("-o,--output", request.output);
  declared.option("--follow", request.follow);
  declared.flag("--text", request.text);
  declared.read(arguments);
  if (!request.help && request.follow.empty() && request.folders.empty()) {
    throw UsageError("no run was named: give the folder of a run, for example runs/gpt");
  }
  for (auto& folder : request.folders) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  }
  return request;
}

RunRecord read(const std::string& folder) {
  MetricsReader reader(folder + "/metrics.jsonl");
  reader.read_more();
  return read_run(folder, reader.metrics(), is_active(folder));
}

int show(const Request& request, Streams streams) {
  std::vector<RunRecord> runs;
  for (const auto& folder : request.folders) runs.push_back(read(folder));
  if (request.text) {
    streams.out << (runs.size() == 1 ? run_text(runs.front()) : comparison_text(runs));
    return kSuccess;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  PageOptions options{.now = std::chrono::duration<double>(now).count(), .version = kVersion};
  // Written once: the page of an active run says when, and does not reload itself.
  const auto page =
      runs.size() == 1 ? run_page(runs.front(), options) : comparison_page(runs, options);
  const auto path = !request.output.empty() ? request.output
                    : runs.size() == 1      ? runs.front().folder + "/report.html"
                                            : std::string("compare.html");
  write_whole(path, page);
  std::error_code error;
  streams.out << std::filesystem::absolute(path, error).lexically_normal().string() << '\n';
  return kSuccess;
}

}  // namespace

int run_report(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto request = read_request(arguments);
    if (request.help) {
      streams.out << kHelp;
      return kSuccess;
    }
    if (!request.follow.empty()) return follow_run(request.follow, 0);
    return show(request, streams);
  } catch (const Error& error) {
    return report("report", error, streams.error);
  }
}

}  // namespace lockstep::cli
