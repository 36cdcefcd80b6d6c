#include "lockstep/machine/host_identity.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace lockstep {
namespace {

TEST(HostIdentity, IsTheSameInEveryProcessOfAHost) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto identity = host_identity();
    ::_exit(::write(ends[1], identity.data(), identity.size()) > 0 ? 0 : 1);
  }
  ::close(ends[1]);
  ::waitpid(child, nullptr, 0);
  std::array<char, 4096> text{};
  const auto count = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  EXPECT_EQ(std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))),
            host_identity());
  for (const auto* word : {"net:", "ipc:", "mnt:"}) {
    EXPECT_NE(host_identity().find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace lockstep
