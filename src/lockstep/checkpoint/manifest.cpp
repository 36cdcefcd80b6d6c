#include "lockstep/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/quote.h"
#include "lockstep/checkpoint/manifest_json_internal.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

constexpr std::string_view kFormat = "lockstep checkpoint";
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::array<std::pair<SaveReason, std::string_view>, 5> kReasons{{
    {SaveReason::periodic, "periodic"},
    {SaveReason::asked, "asked"},
    {SaveReason::stop, "stop"},
    {SaveReason::finish, "finish"},
    {SaveReason::import, "import"},
}};

// The last member of the object and the end of the text: the digest of the text before it.
std::string seal_of(std::string_view body) {
  return fmt::format(",\n \"manifest_digest\": \"{:016x}\"\n}}\n",
                     digest(std::as_bytes(std::span(body))));
}
constexpr std::size_t kSealBytes =
    std::string_view(",\n \"manifest_digest\": \"0123456789abcdef\"\n}\n").size();

bool is_file_name(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  return name.ends_with(kEnding) && is_part_name(name.substr(0, name.size() - kEnding.size()));
}

SaveReason reason_named(const std::string& name) {
  const auto found = std::ranges::find(kReasons, name, &decltype(kReasons)::value_type::second);
  if (found != kReasons.end()) return found->first;
  refuse_manifest(fmt::format("reason is {}, expected periodic, asked, stop, finish or import",
                              in_quotes(name)));
}

// JSON of the program, for a manifest to be written; the reader's limits apply to it too.
nlohmann::json value_of(const std::string& what, const std::string& text) {
  try {
    return strict_json(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} is invalid: {}", what, error.what()));
  }
}

nlohmann::ordered_json fields_of(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["format_version"] = kCheckpointVersion;
  json["lockstep"] = manifest.lockstep_version;
  json["step"] = manifest.step;
  json["world"] = manifest.world;
  json["threads"] = manifest.threads;
  json["seed"] = fmt::format("{}", manifest.seed);
  json["data_id"] = fmt::format("{:016x}", manifest.data_id);
  json["failures"] = manifest.failures;
  json["reason"] = to_string(manifest.reason);
  json["kept_as"] = manifest.kept_as;
  json["configuration"] = value_of("the configuration", manifest.configuration);
  json["states"] = nlohmann::ordered_json::object();
  for (const auto& [part, state] : manifest.states) {
    json["states"][part] = value_of(fmt::format("the state of {}", part), state);
  }
  json["files"] = nlohmann::ordered_json::array();
  for (const auto& file : manifest.files) {
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.bytes},
                             {"digest", fmt::format("{:016x}", file.digest)}});
  }
  return json;
}

std::vector<FileRecord> read_files(const nlohmann::json& list) {
  if (!list.is_array()) {
    refuse_manifest(fmt::format("files is {}, expected an array", list.type_name()));
  }
  std::vector<FileRecord> files;
  std::set<std::string> names;
  for (const auto& item : list) {
    Fields fields(item, fmt::format("file {}", files.size()));
    FileRecord file{fields.text("name"),
                    static_cast<std::uint64_t>(fields.whole("bytes", 0, kMost)),
                    fields.hexadecimal("digest")};
    fields.expect_no_more();
    if (!is_file_name(file.name)) {
      refuse_manifest(
          fmt::format("file {} has the name {}, expected a plain name that ends with "
                      ".safetensors",
                      files.size(), in_quotes(file.name)));
    }
    if (!names.insert(file.name).second) {
      refuse_manifest(fmt::format("the file {} is listed twice, expected once", file.name));
    }
    files.push_back(std::move(file));
  }
  return files;
}

std::vector<std::string> read_names(const nlohmann::json& list) {
  if (!list.is_array()) {
    refuse_manifest(fmt::format("kept_as is {}, expected an array", list.type_name()));
  }
  std::vector<std::string> names;
  for (const auto& item : list) {
    if (!item.is_string() || !is_part_name(item.get_ref<const std::string&>())) {
      refuse_manifest(fmt::format("kept_as has {}, expected names of letters, digits, _ and -",
                                  item.is_string() ? in_quotes(item.get_ref<const std::string&>())
                                                   : std::string(item.type_name())));
    }
    names.push_back(item.get<std::string>());
  }
  return names;
}

std::map<std::string, std::string> read_states(const nlohmann::json& object) {
  if (!object.is_object()) {
    refuse_manifest(fmt::format("states is {}, expected an object", object.type_name()));
  }
  std::map<std::string, std::string> states;
  for (const auto& [part, state] : object.items()) {
    if (!is_part_name(part)) {
      refuse_manifest(
          fmt::format("a state belongs to {}, which is not a valid part name", in_quotes(part)));
    }
    states.emplace(part, state.dump());
  }
  return states;
}

void check_format(Fields& fields) {
  if (const auto format = fields.text("format"); format != kFormat) {
    refuse_manifest(fmt::format("format is {}, expected \"{}\"", in_quotes(format), kFormat));
  }
  const auto version = fields.whole("format_version", 1, kMost);
  if (version != kCheckpointVersion) {
    refuse_manifest(
        fmt::format("format_version is {}, this lockstep reads {}; use a newer lockstep", version,
                    kCheckpointVersion));
  }
}

}  // namespace

std::string_view to_string(SaveReason reason) noexcept {
  return std::ranges::find(kReasons, reason, &decltype(kReasons)::value_type::first)->second;
}

bool is_part_name(std::string_view name) noexcept {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, allowed);
}

std::string part_file(std::string_view part) { return fmt::format("{}.safetensors", part); }
std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

std::string to_text(const Manifest& manifest) {
  auto body = fields_of(manifest).dump(1);
  body.resize(body.rfind("\n}"));  // the digest becomes the last member
  return body + seal_of(body);
}

Manifest manifest_from_text(std::string_view text) {
  if (text.size() > kMaxManifestBytes || text.size() <= kSealBytes) {
    refuse_manifest(fmt::format("it has {} bytes, expected more than {} and at most {}",
                                text.size(), kSealBytes, kMaxManifestBytes));
  }
  const auto body = text.substr(0, text.size() - kSealBytes);
  if (text.substr(body.size()) != seal_of(body)) {
    refuse_manifest(
        fmt::format("its digest does not match (it ends with {}, expected {}): it was changed or "
                    "truncated after it was written",
                    in_quotes(text.substr(body.size())), in_quotes(seal_of(body))));
  }
  const auto json = strict_json(text);
  Fields fields(json, "the manifest");
  check_format(fields);
  Manifest manifest;
  manifest.lockstep_version = fields.text("lockstep");
  manifest.step = fields.whole("step", 0, kMost);
  manifest.world = static_cast<int>(fields.whole("world", 1, 1 << 20));
  manifest.threads = static_cast<int>(fields.whole("threads", 1, 1 << 20));
  manifest.seed = fields.decimal("seed");
  manifest.data_id = fields.hexadecimal("data_id");
  manifest.failures = fields.whole("failures", 0, kMost);
  manifest.reason = reason_named(fields.text("reason"));
  manifest.kept_as = read_names(fields.at("kept_as"));
  manifest.configuration = fields.at("configuration").dump();
  manifest.states = read_states(fields.at("states"));
  manifest.files = read_files(fields.at("files"));
  (void)fields.text("manifest_digest");
  fields.expect_no_more();
  return manifest;
}

}  // namespace lockstep
