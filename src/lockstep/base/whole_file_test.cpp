#include "lockstep/base/whole_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(WholeFile, IsReplacedAndLeavesNothingBesideIt) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("lockstep-whole-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "a.json";
  for (const std::string text : {"first, and longer", "second"}) {
    write_whole(path, text);
    std::ostringstream found;
    found << std::ifstream(path).rdbuf();
    EXPECT_EQ(found.str(), text);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

TEST(WholeFile, AMissingFolderIsNamed) {
  try {
    write_whole("/nowhere/end.json", "");
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/end.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
