#include "lockstep/launch/run_folder.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <filesystem>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestProgram = 64;

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;  // the user's umask sets the permissions
  if (errno == EEXIST) {
    throw UsageError(fmt::format(
        "the run folder {} already exists and belongs to another run: give a new one with "
        "--run-dir, or remove it",
        path));
  }
  throw SystemError(fmt::format("cannot create the run folder {}", path), errno);
}

std::string file_name_of(std::string_view program) {
  const auto slash = program.find_last_of('/');
  std::string name(slash == std::string_view::npos ? program : program.substr(slash + 1));
  for (char& letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) == 0 && letter != '.' && letter != '-' && letter != '_') letter = '_';
  }
  if (name.size() > kLongestProgram) name.resize(kLongestProgram);
  if (name.empty() || name.front() == '.' || name.front() == '-') name.insert(0, "run");
  return name;
}

}  // namespace

RunFolder RunFolder::create(const std::string& path) {
  std::error_code error;
  auto whole = std::filesystem::absolute(path, error).lexically_normal();
  if (!error && !whole.has_filename()) whole = whole.parent_path();  // "runs/a/"
  if (!error) std::filesystem::create_directories(whole.parent_path(), error);
  if (error) {
    throw SystemError(fmt::format("cannot create the parents of the run folder {}", path),
                      error.value());
  }
  make_folder(whole.string());
  make_folder(whole.string() + "/logs");
  return RunFolder(whole.string());
}

std::string run_name(std::string_view program, std::chrono::system_clock::time_point now,
                     std::string_view token) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{}-{:04}{:02}{:02}T{:02}{:02}{:02}Z-{}", file_name_of(program),
                     parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                     parts.tm_min, parts.tm_sec, token);
}

std::string random_token() {
  std::uint32_t bits = 0;
  while (::getrandom(&bits, sizeof(bits), 0) != ssize_t{sizeof(bits)}) {
    if (errno != EINTR) throw SystemError("cannot draw a random token", errno);
  }
  return fmt::format("{:08x}", bits);
}

std::string log_path(const std::string& logs, int rank, int restarts) {
  if (restarts == 0) return fmt::format("{}/rank-{:03}.log", logs, rank);
  return fmt::format("{}/rank-{:03}.restart-{}.log", logs, rank, restarts);
}

}  // namespace lockstep
