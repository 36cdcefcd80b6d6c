// Runs a fuzz target on stored inputs, so that errors found by fuzzing are tested without a fuzzer.
// Arguments are files and folders (all files in them, in the order of their names). A crash is an
// error of the target; exit code 1 means that there was no input, which would otherwise be
// unnoticed.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

// The files at `path`; empty when it is missing or an empty folder.
std::vector<fs::path> files_of(const fs::path& path) {
  std::error_code error;  // an unreadable file counts as missing
  if (fs::is_regular_file(path, error)) return {path};
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<std::vector<std::uint8_t>> try_read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) return std::nullopt;
  return bytes;
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments < 2) {
    std::fprintf(stderr, "No input was named: give the folder of a corpus, or files of one.\n");
    return 1;
  }
  std::size_t num_replayed = 0;
  for (int i = 1; i < num_arguments; ++i) {
    const auto files = files_of(arguments[i]);
    if (files.empty()) {
      std::fprintf(stderr,
                   "%s is missing or holds no file: give the folder of a corpus with at least one "
                   "input, such as tests/fuzz/corpus/<target>.\n",
                   arguments[i]);
      return 1;
    }
    for (const auto& path : files) {
      const auto bytes = try_read(path);
      if (!bytes) {
        std::fprintf(stderr, "%s cannot be read: check its permissions.\n", path.c_str());
        return 1;
      }
      // Printed before the input runs, so that the last line before a crash names its cause.
      std::printf("%s\n", path.filename().c_str());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(bytes->data(), bytes->size());
      ++num_replayed;
    }
  }
  std::printf("%zu inputs replayed.\n", num_replayed);
  return 0;
}
