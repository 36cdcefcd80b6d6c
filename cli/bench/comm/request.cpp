#include "cli/bench/comm/request.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

void write_text(const std::string& text, const std::string& path) {
  const auto file = FileDescriptor::open(path, O_WRONLY | O_CREAT | O_TRUNC);
  write_all(file.number(), std::as_bytes(std::span(text)), path);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw SystemError(fmt::format("cannot read {}", path), errno);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Read>
auto read_json(const std::string& text, const std::string& origin, Read read) {
  try {
    return read(ordered_json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("{} is not of bench comm: {}", origin, error.what()));
  }
}

template <typename Value>
Value expect_word(std::optional<Value> value, const std::string& word) {
  if (!value) throw UsageError(fmt::format("bench comm does not time \"{}\"", word));
  return *value;
}

CommCase case_of(const ordered_json& json) {
  const auto op = json.at("op").get<std::string>();
  const auto dtype = json.at("dtype").get<std::string>();
  return {
      .op = expect_word(try_timed_collective(op), op),
      .dtype = expect_word(try_dtype(dtype), dtype),
      .bytes = json.at("bytes"),
      .memory = json.at("memory") == "registered" ? MemoryKind::registered : MemoryKind::ordinary};
}

std::optional<CommSamples> samples_of(const ordered_json& json) {
  if (json.is_null()) return std::nullopt;
  return CommSamples{.cold = json.at("cold"),
                     .hot = json.at("hot"),
                     .add_bytes_per_second = json.at("add_bytes_per_second")};
}

}  // namespace

std::optional<Collective> try_timed_collective(std::string_view word) {
  for (const auto op : timed_collectives()) {
    if (to_string(op) == word) return op;
  }
  return std::nullopt;
}

std::optional<DType> try_dtype(std::string_view word) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (to_string(static_cast<DType>(i)) == word) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string to_text(const CommRequest& request) {
  ordered_json cases = ordered_json::array();
  for (const auto& timed : request.cases) {
    cases.push_back({{"op", to_string(timed.op)},
                     {"dtype", to_string(timed.dtype)},
                     {"bytes", timed.bytes},
                     {"memory", to_string(timed.memory)}});
  }
  const ordered_json json{{"ranks", request.ranks},
                          {"cases", cases},
                          {"seconds", request.seconds},
                          {"iterations", request.iterations},
                          {"rotation_bytes", request.rotation_bytes},
                          {"arena_bytes", request.arena_bytes},
                          {"on_one_host", request.on_one_host},
                          {"processors", request.processors}};
  return json.dump();
}

CommRequest request_from_text(const std::string& text, const std::string& origin) {
  return read_json(text, origin, [](const ordered_json& json) {
    CommRequest request{.ranks = json.at("ranks"),
                        .seconds = json.at("seconds"),
                        .iterations = json.at("iterations"),
                        .rotation_bytes = json.at("rotation_bytes"),
                        .arena_bytes = json.at("arena_bytes"),
                        .on_one_host = json.at("on_one_host"),
                        .processors = json.at("processors")};
    for (const auto& timed : json.at("cases")) request.cases.push_back(case_of(timed));
    return request;
  });
}

void write_request(const CommRequest& request, const std::string& path) {
  write_text(to_text(request), path);
}

CommRequest read_request(const std::string& path) {
  return request_from_text(read_text(path), path);
}

void write_answer(const CommAnswer& answer, const std::string& path) {
  ordered_json cases = ordered_json::array();
  for (const auto& samples : answer.samples) {
    if (!samples) {
      cases.push_back(nullptr);
      continue;
    }
    cases.push_back({{"cold", samples->cold},
                     {"hot", samples->hot},
                     {"add_bytes_per_second", samples->add_bytes_per_second}});
  }
  write_text(ordered_json{{"name", answer.name}, {"about", answer.about}, {"cases", cases}}.dump(),
             path);
}

CommAnswer read_answer(const std::string& path) {
  return read_json(read_text(path), path, [](const ordered_json& json) {
    CommAnswer answer{.name = json.value("name", ""), .about = json.at("about")};
    for (const auto& samples : json.at("cases")) answer.samples.push_back(samples_of(samples));
    return answer;
  });
}

}  // namespace lockstep::cli
