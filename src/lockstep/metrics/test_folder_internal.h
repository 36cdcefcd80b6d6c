// A temporary folder per test, and functions that read and write its files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep {

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }

  [[nodiscard]] static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static void append(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::app) << text;
  }

  const std::string folder_ = ::testing::TempDir() + "lockstep_metrics_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                              "_" + std::to_string(::getpid());
};

}  // namespace lockstep
