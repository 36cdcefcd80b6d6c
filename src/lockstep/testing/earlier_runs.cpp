#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/testing/earlier_runs_internal.h"

namespace lockstep::testing {
namespace {

using nlohmann::json;

constexpr std::string_view kKeyPrefix = "lockstep_run_";

// The values of our properties of the running test, in the order of the calls; empty while a call
// runs.
std::vector<std::string> records() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr) {
    throw UsageError(
        "ranks run as processes inside a GoogleTest test only: move the call into one");
  }
  std::vector<std::string> values;
  for (int i = 0; i < test->result()->test_property_count(); ++i) {
    const auto& property = test->result()->GetTestProperty(i);
    if (std::string_view(property.key()).starts_with(kKeyPrefix))
      values.emplace_back(property.value());
  }
  return values;
}

void record(int number, const std::string& value) {
  ::testing::Test::RecordProperty(fmt::format("{}{}", kKeyPrefix, number), value);
}

json to_json(const RankOutcome& outcome) {
  return {{"exit_code", outcome.exit_code.value_or(-1)},
          {"signal", outcome.signal.value_or(-1)},
          {"returned", outcome.returned},
          {"output", outcome.output}};
}

RankOutcome outcome_from(const json& value) {
  RankOutcome outcome;
  if (value.at("exit_code") != -1) outcome.exit_code = value.at("exit_code").get<int>();
  if (value.at("signal") != -1) outcome.signal = value.at("signal").get<int>();
  outcome.returned = value.at("returned").get<bool>();
  outcome.output = value.at("output").get<std::string>();
  return outcome;
}

}  // namespace

int begin_run() {
  const auto earlier = records();
  if (!earlier.empty() && earlier.back().empty()) {
    throw UsageError(
        "ranks cannot be run as processes inside another such run: call the second one after the "
        "first");
  }
  const int number = static_cast<int>(earlier.size()) + 1;
  record(number, "");
  return number;
}

void end_run(int number, const EarlierRun& run) {
  json value{{"outcomes", json::array()}, {"error_rank", run.error_rank}};
  for (const auto& outcome : run.outcomes) value["outcomes"].push_back(to_json(outcome));
  if (run.error) value["error"] = *run.error;
  // Output may be any bytes; invalid UTF-8 is replaced.
  record(number, value.dump(-1, ' ', true, json::error_handler_t::replace));
}

FileDescriptor earlier_runs_as_file() {
  std::string text;
  for (const auto& value : records()) text += value + "\n";
  FileDescriptor file(::memfd_create("lockstep earlier runs", MFD_CLOEXEC));
  if (!file) throw SystemError("cannot create a memfd for a test's earlier runs", errno);
  write_all(file.number(), std::as_bytes(std::span(text)), "a test's earlier runs");
  return file;
}

EarlierRun earlier_run_from_file(int descriptor, int number) {
  std::string text;
  std::array<char, 16384> chunk{};
  ssize_t count = 0;
  // By position: the ranks share the file offset that read(2) would use.
  while ((count = ::pread(descriptor, chunk.data(), chunk.size(),
                          static_cast<off_t>(text.size()))) > 0) {
    text.append(chunk.data(), static_cast<std::size_t>(count));
  }
  std::string_view rest(text);
  for (int i = 1; i < number; ++i) rest.remove_prefix(rest.find('\n') + 1);
  const json value = json::parse(rest.substr(0, rest.find('\n')));
  EarlierRun run;
  for (const auto& outcome : value.at("outcomes")) run.outcomes.push_back(outcome_from(outcome));
  if (value.contains("error")) run.error = value.at("error").get<std::string>();
  run.error_rank = value.at("error_rank").get<int>();
  return run;
}

}  // namespace lockstep::testing
