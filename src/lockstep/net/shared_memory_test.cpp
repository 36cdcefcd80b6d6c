#include "lockstep/net/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

FileDescriptor copy_of(int descriptor) { return FileDescriptor(::dup(descriptor)); }

TEST(SharedMemory, IsZeroAndSeenByEveryProcessThatReceivesIt) {
  const SharedMemory made(3 * page_bytes());
  const SharedMemory given(copy_of(made.descriptor()), 3 * page_bytes());
  EXPECT_NE(made.bytes().data(), given.bytes().data());
  EXPECT_EQ(std::count(made.bytes().begin(), made.bytes().end(), std::byte{0}),
            static_cast<std::ptrdiff_t>(3 * page_bytes()));
  made.bytes()[5000] = std::byte{7};
  EXPECT_EQ(given.bytes()[5000], std::byte{7});
}

TEST(PrivateView, SeesWritesToTheMemoryAndKeepsItsOwn) {
  const auto page = page_bytes();
  const SharedMemory memory(4 * page);
  const PrivateView view(memory, page, 2 * page);
  ASSERT_EQ(view.bytes().size(), 2 * page);
  memory.bytes()[page] = std::byte{7};
  EXPECT_EQ(view.bytes()[0], std::byte{7});
  view.bytes()[0] = std::byte{9};
  EXPECT_EQ(memory.bytes()[page], std::byte{7}) << "a write to the view is private";
  memory.bytes()[2 * page] = std::byte{5};
  EXPECT_EQ(view.bytes()[page], std::byte{5})
      << "pages that were not written still show the memory";
}

TEST(PrivateView, ShowsTheMemoryAgainAfterForgetWrites) {
  const auto page = page_bytes();
  const SharedMemory memory(3 * page);
  PrivateView view(memory, page, 2 * page);
  memory.bytes()[page] = std::byte{7};
  view.bytes()[0] = std::byte{9};
  view.bytes()[page] = std::byte{9};
  memory.bytes()[page + 1] = std::byte{3};
  EXPECT_EQ(view.bytes()[1], std::byte{0}) << "the page is a copy";
  view.forget_writes();
  EXPECT_EQ(view.bytes()[0], std::byte{7});
  EXPECT_EQ(view.bytes()[1], std::byte{3});
  EXPECT_EQ(view.bytes()[page], std::byte{0});
  memory.bytes()[page] = std::byte{8};
  EXPECT_EQ(view.bytes()[0], std::byte{8}) << "later writes too";
  view.bytes()[0] = std::byte{4};
  EXPECT_EQ(memory.bytes()[page], std::byte{8}) << "a write to the view is still private";
}

TEST(SharedMemory, APartMadePrivateKeepsItsBytesAndSeesNoLaterWrites) {
  const auto page = page_bytes();
  const SharedMemory made(3 * page);
  SharedMemory given(copy_of(made.descriptor()), 3 * page);
  std::fill(made.bytes().begin(), made.bytes().end(), std::byte{1});
  given.make_private(page, page);
  std::fill(made.bytes().begin(), made.bytes().end(), std::byte{2});
  EXPECT_EQ(given.bytes()[0], std::byte{2});
  EXPECT_EQ(given.bytes()[page], std::byte{1});
  EXPECT_EQ(given.bytes()[2 * page - 1], std::byte{1});
  EXPECT_EQ(given.bytes()[2 * page], std::byte{2});
  given.bytes()[page] = std::byte{3};
  EXPECT_EQ(made.bytes()[page], std::byte{2});
}

TEST(SharedMemory, CanNeitherShrinkNorGrow) {
  const SharedMemory made(page_bytes());
  EXPECT_NE(::ftruncate(made.descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(made.descriptor(), static_cast<off_t>(2 * page_bytes())), 0);
}

TEST(SharedMemory, MemoryThatCouldShrinkOrHasAnotherSizeIsRefused) {
  const SharedMemory made(2 * page_bytes());
  EXPECT_THROW(SharedMemory(copy_of(made.descriptor()), page_bytes()), UsageError);
  FileDescriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.number(), static_cast<off_t>(page_bytes())), 0);
  EXPECT_THROW(SharedMemory(std::move(loose), page_bytes()), UsageError);
  EXPECT_THROW(SharedMemory(FileDescriptor::open("/dev/zero", O_RDWR), page_bytes()), UsageError);
}

TEST(SharedMemory, TooMuchIsASystemErrorThatNamesTheSize) {
  try {
    const SharedMemory made(std::size_t{1} << 62);
    ADD_FAILURE() << "no error";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("shared memory"), std::string::npos) << error.what();
  }
}

TEST(SharedMemory, LeavesNothingMapped) {
  const auto mapped = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t count = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:lockstep memory") != std::string::npos) ++count;
    }
    return count;
  };
  {
    SharedMemory made(4 * page_bytes());
    made.make_private(page_bytes(), page_bytes());
    EXPECT_EQ(mapped(), 2U);  // before and behind the private page
  }
  EXPECT_EQ(mapped(), 0U);
}

TEST(SharedMemory, MayHaveNoBytes) {
  const SharedMemory made(0);
  EXPECT_TRUE(made.bytes().empty());
}

}  // namespace
}  // namespace lockstep
