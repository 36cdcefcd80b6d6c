#include "lockstep/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/test_forwarding_file_system_internal.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A byte-range lock, as an NFSv4 client sends it to its server. A flock(2) on a folder stays on the
// client.
bool try_lock_bytes(const FileDescriptor& file) {
  struct flock all {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  return ::fcntl(file.number(), F_OFD_SETLK, &all) == 0;
}

class FolderLockTest : public ::testing::Test {
 protected:
  FolderLockTest() { fs::create_directories(checkpoints); }

  std::string refusal_to_resume(RunOptions options = {}) {
    Toy toy;
    lockstep::Run run(World::alone(), folder.path(), std::move(options));
    run.track("toy", toy);
    try {
      (void)run.resume();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "resumed";
  }

  const TestFolder folder;
  const std::string checkpoints = folder.path() + "/checkpoints";
  const std::string lock = checkpoints + "/run.lock";
};

TEST_F(FolderLockTest, ARunIsRefusedWhileAnotherHostHoldsTheLockAndTheHostIsNamed) {
  const auto unfinished = checkpoints + "/step-5.tmp-0123456789abcdef-1";
  fs::create_directories(unfinished);
  const auto other = FileDescriptor::open(lock, O_RDWR | O_CREAT, 0644);
  ASSERT_TRUE(try_lock_bytes(other));
  const std::string owner = "host alpha process 41\n";
  write_all(other.number(), std::as_bytes(std::span(owner)), lock);
  const auto words = refusal_to_resume();
  EXPECT_NE(words.find("process 41 on host alpha"), std::string::npos) << words;
  EXPECT_NE(words.find("use another folder"), std::string::npos) << words;
  EXPECT_TRUE(fs::exists(unfinished)) << "it belongs to a live owner";
}

TEST_F(FolderLockTest, ARunHoldsALockThatAnotherHostSeesAndReleasesIt) {
  {
    Toy toy;
    lockstep::Run run(World::alone(), folder.path());
    run.track("toy", toy);
    (void)run.resume();
    const auto other = FileDescriptor::open(lock, O_RDWR);
    EXPECT_FALSE(try_lock_bytes(other));
    const auto words = refusal_to_resume();
    EXPECT_NE(words.find(fmt::format("process {} on host ", ::getpid())), std::string::npos)
        << words;
  }
  EXPECT_TRUE(try_lock_bytes(FileDescriptor::open(lock, O_RDWR)));
  EXPECT_EQ(refusal_to_resume(), "resumed") << "the file of an earlier run is not a lock";
}

TEST_F(FolderLockTest, ARunIsRefusedAlsoIfTheOwnersTextIsInvalid) {
  const auto other = FileDescriptor::open(lock, O_RDWR | O_CREAT, 0644);
  ASSERT_TRUE(try_lock_bytes(other));
  for (const auto* text : {"", "host", "\x1b[2J", "host a\nb process 3"}) {
    ASSERT_EQ(::ftruncate(other.number(), 0), 0);
    ASSERT_EQ(::pwrite(other.number(), text, std::strlen(text), 0),
              static_cast<ssize_t>(std::strlen(text)));
    const auto words = refusal_to_resume();
    EXPECT_NE(words.find("another run is using"), std::string::npos) << words;
    EXPECT_EQ(words.find('\x1b'), std::string::npos);
    EXPECT_EQ(words.find('\n'), std::string::npos);
  }
}

TEST_F(FolderLockTest, ALockThatIsALinkOrAPipeIsNotFollowed) {
  const auto precious = folder.path() + "/precious";
  std::ofstream(precious) << "precious";
  fs::create_symlink(precious, lock);
  EXPECT_THROW((void)lock_folder(checkpoints), SystemError);
  EXPECT_EQ(fs::file_size(precious), 8U);
  fs::remove(lock);
  ASSERT_EQ(::mkfifo(lock.c_str(), 0600), 0);
  EXPECT_THROW((void)lock_folder(checkpoints), UsageError);
}

// A file system without locks (Lustre without -o flock).
class LocklessFileSystem final : public ForwardingFileSystem {
 public:
  FolderLock try_lock(const std::string& /*folder*/) override {
    return {.held = std::make_shared<int>(0), .missing = "this file system has no locks"};
  }
};

TEST_F(FolderLockTest, WithoutLocksARunWarnsAndSweepsNothing) {
  const auto unfinished = checkpoints + "/step-5.tmp-0123456789abcdef-1";
  fs::create_directories(unfinished);
  const TestLog log;
  EXPECT_EQ(refusal_to_resume({.log = log.log(0), .files = std::make_shared<LocklessFileSystem>()}),
            "resumed");
  EXPECT_TRUE(fs::exists(unfinished)) << "it may belong to another host";
  EXPECT_NE(log.text().find("warning: this file system has no locks"), std::string::npos)
      << log.text();
}

}  // namespace
}  // namespace lockstep
