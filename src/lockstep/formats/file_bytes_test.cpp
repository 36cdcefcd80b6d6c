#include "lockstep/formats/file_bytes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/formats/token_file.h"

namespace lockstep {
namespace {

std::string temporary(const std::string& name) { return testing::TempDir() + name; }

// Resident memory of this process in bytes.
std::uint64_t resident_bytes() {
  std::ifstream facts("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  facts >> total >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

TEST(FileBytes, MapsWhatIsInTheFile) {
  const auto path = temporary("file_bytes_test.txt");
  std::ofstream(path) << "hello";
  const auto file = FileBytes::map(path);
  EXPECT_EQ(file.text(), "hello");
  EXPECT_EQ(file.name(), path);
  unlink(path.c_str());
  EXPECT_EQ(file.text(), "hello");  // the mapping keeps the file
}

TEST(FileBytes, AnEmptyFileHasNoBytes) {
  const auto path = temporary("file_bytes_empty");
  std::ofstream(path).flush();
  EXPECT_EQ(FileBytes::map(path).size(), 0u);
  unlink(path.c_str());
}

TEST(FileBytes, FoldersDevicesAndMissingFilesAreRefusedByName) {
  EXPECT_THROW((void)FileBytes::map("/no/such/file"), SystemError);
  EXPECT_THROW((void)FileBytes::map("/"), UsageError);
  try {
    (void)FileBytes::map("/dev/null");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("/dev/null is not a regular file"), std::string::npos);
  }
}

// A plain open() of a pipe without a writer waits.
TEST(FileBytes, ANamedPipeIsRefusedWithoutWaiting) {
  const auto path = temporary("file_bytes_pipe");
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  auto refused = std::async(std::launch::async, [&]() -> std::string {
    try {
      (void)FileBytes::map(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "mapped";
  });
  const bool at_once = refused.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(at_once);
  if (!at_once) {  // a writer lets it continue
    const auto writer = FileDescriptor::open(path, O_WRONLY);
    refused.wait();
  }
  EXPECT_NE(refused.get().find(path + " is not a regular file"), std::string::npos);
  unlink(path.c_str());
}

TEST(FileBytes, APartOutlivesTheWhole) {
  const auto part = [] { return FileBytes::of("whole", "abcdef").part("part", 2, 3); }();
  EXPECT_EQ(part.text(), "cde");
}

TEST(FileBytes, TheDataIdSeesSizeFirstAndLastBytes) {
  std::string text(1 << 20, 'x');
  const auto id = FileBytes::of("a", text).data_id();
  EXPECT_EQ(FileBytes::of("other name", text).data_id(), id);
  EXPECT_NE(FileBytes::of("a", text + 'x').data_id(), id);
  for (const std::size_t at : {std::size_t{0}, text.size() / 63 * 10 / 8 * 8, text.size() - 1}) {
    auto other = text;
    other[at] = 'y';
    EXPECT_NE(FileBytes::of("a", other).data_id(), id) << at;
  }
  EXPECT_NE(FileBytes::of("a", "x").data_id(), FileBytes::of("a", "y").data_id());
}

// The file is sparse: pages that are read become resident and are counted.
TEST(FileBytes, ATenGigabyteTokenFileIsMappedAndNotRead) {
  const auto path = temporary("file_bytes_sparse.bin");
  constexpr std::uint64_t size = 10'000'000'000;
  {
    const auto file = FileDescriptor::open(path, O_RDWR | O_CREAT | O_TRUNC);
    if (ftruncate(file.number(), static_cast<off_t>(size)) != 0) {
      unlink(path.c_str());
      GTEST_SKIP() << "this file system has no sparse files of 10 GB";
    }
  }
  const auto resident = resident_bytes();
  const TokenFile tokens(FileBytes::map(path));
  const auto id = tokens.file().data_id();
  unlink(path.c_str());
  EXPECT_EQ(tokens.num_tokens(), size / 2);
  EXPECT_NE(id, 0u);
  EXPECT_LT(resident_bytes() - resident, 16u << 20);
  std::vector<std::int64_t> last(1, 7);
  tokens.read(tokens.num_tokens() - 1, last);
  EXPECT_EQ(last[0], 0);
}

}  // namespace
}  // namespace lockstep
