#include "lockstep/net/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using std::chrono_literals::operator""s;

template <typename T>
concept Streamable = requires(std::ostream& out, const T& value) {
  out << value;
};
static_assert(!Streamable<Secret>);
static_assert(!fmt::is_formattable<Secret>::value);
static_assert(!std::is_copy_constructible_v<Secret> && !std::is_copy_assignable_v<Secret>);
static_assert(std::is_nothrow_move_constructible_v<Secret>);

std::vector<std::byte> bytes_of(const Secret& secret) {
  return {secret.bytes().begin(), secret.bytes().end()};
}

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() {
    auto pattern = ::testing::TempDir() + "/lockstep_secret_XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~SecretFile() override { fs::remove_all(folder_); }

  fs::path write(const std::string& text, mode_t mode = 0600) const {
    auto path = folder_ / "secret";
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  // The message with which reading `path` is refused.
  static std::string refusal_of(const fs::path& path) {
    try {
      (void)Secret::from_file(path);
    } catch (const UsageError& error) {
      return error.what();
    }
    ADD_FAILURE() << "read " << path;
    return "";
  }

  std::size_t num_files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  fs::path folder_;
};

const std::string kDigits = "00112233445566778899aabbccddeeff0123456789abcdefFEDCBA9876543210";

TEST(Secret, NewOnesDiffer) { EXPECT_NE(bytes_of(Secret::random()), bytes_of(Secret::random())); }

TEST(Secret, PrintingTheObjectShowsNoByteOfIt) {
  const auto secret = Secret::random();
  const auto* object = reinterpret_cast<const std::byte*>(&secret);
  const auto bytes = bytes_of(secret);
  EXPECT_EQ(std::search(object, object + sizeof secret, bytes.begin(), bytes.begin() + 4),
            object + sizeof secret);
}

TEST(SecretDeathTest, AMovedFromSecretHasNoBytes) {
  auto secret = Secret::random();
  const auto expected = bytes_of(secret);
  const auto moved = std::move(secret);
  EXPECT_EQ(bytes_of(moved), expected);
  EXPECT_EQ(bytes_of(moved.copy()), expected);
  // NOLINTNEXTLINE(bugprone-use-after-move): this is the claim.
  EXPECT_DEATH((void)secret.bytes(), "moved-from");
}

TEST(Secret, IsPassedByADescriptorThatManyCanRead) {
  const auto secret = Secret::random();
  const auto file = secret.to_descriptor();
  EXPECT_NE(::fcntl(file.number(), F_GETFD) & FD_CLOEXEC, 0);
  for (int reader = 0; reader < 3; ++reader) {
    EXPECT_EQ(bytes_of(Secret::from_descriptor(file.number())), bytes_of(secret));
  }
  EXPECT_LT(::pwrite(file.number(), "x", 1, 0), 0) << "it is not sealed";
  EXPECT_LT(::ftruncate(file.number(), 0), 0) << "it is not sealed";
}

TEST(Secret, ADescriptorOfAnythingElseIsRefused) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const FileDescriptor reader(ends[0]);
  const FileDescriptor writer(ends[1]);
  const auto null = FileDescriptor::open("/dev/null", O_RDONLY);
  const auto long_file = FileDescriptor::open("/proc/self/exe", O_RDONLY);
  for (const int number : {reader.number(), null.number(), long_file.number(), -1, 1'000'000}) {
    EXPECT_THROW((void)Secret::from_descriptor(number), UsageError) << number;
  }
}

TEST_F(SecretFile, IsCreatedForItsOwnerOnlyAndReadBack) {
  const auto path = folder_ / "new" / "folders" / "secret";
  const auto made = Secret::create_or_read_file(path);
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_EQ(mode_of(path.parent_path()), 0700u);
  EXPECT_EQ(mode_of(path.parent_path().parent_path()), 0700u);
  EXPECT_EQ(fs::file_size(path), 65u);
  EXPECT_EQ(bytes_of(Secret::create_or_read_file(path)), bytes_of(made));
  EXPECT_EQ(bytes_of(Secret::from_file(path)), bytes_of(made));
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1) << "a draft was left";
}

TEST_F(SecretFile, HasMode0600WhateverTheUmask) {
  const auto before = ::umask(0777);
  const auto path = folder_ / "secret";
  (void)Secret::create_or_read_file(path);
  ::umask(before);
  EXPECT_EQ(mode_of(path), 0600u);
}

TEST_F(SecretFile, Holds64DigitsWithOrWithoutAnEndOfLine) {
  const auto expected = bytes_of(Secret::from_file(write(kDigits)));
  EXPECT_EQ(expected.front(), std::byte{0x00});
  EXPECT_EQ(expected.at(1), std::byte{0x11});
  EXPECT_EQ(expected.back(), std::byte{0x10});
  EXPECT_EQ(bytes_of(Secret::from_file(write(kDigits + "\n"))), expected);
  EXPECT_EQ(bytes_of(Secret::from_file(write(kDigits, 0400))), expected);
}

TEST_F(SecretFile, IsReadToItsEndWhateverTheErrorOfAnEarlierCallWas) {
  const auto path = write(kDigits);
  errno = EINTR;  // calls that succeed leave it
  EXPECT_EQ(Secret::from_file(path).bytes()[1], std::byte{0x11});
}

TEST_F(SecretFile, WithOtherContentIsRefusedWithoutShowingIt) {
  for (const auto& text : {std::string(), kDigits.substr(1), kDigits + "0", kDigits + "\r\n",
                           kDigits + "\n\n", " " + kDigits.substr(1), "g" + kDigits.substr(1),
                           std::string(64, '\0'), kDigits + kDigits}) {
    const auto said = refusal_of(write(text));
    EXPECT_NE(said.find("openssl rand -hex 32"), std::string::npos) << said;
    EXPECT_EQ(said.find(kDigits.substr(10, 8)), std::string::npos) << said;
  }
}

TEST_F(SecretFile, ThatOthersCanAccessIsRefusedWithTheCommandThatFixesIt) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0610u, 0601u, 0666u}) {
    const auto path = write(kDigits, mode);
    const auto said = refusal_of(path);
    EXPECT_NE(said.find("run chmod 600 " + path.string()), std::string::npos) << said;
    EXPECT_NE(said.find(fmt::format("mode {:04o}", mode)), std::string::npos) << said;
    EXPECT_THROW((void)Secret::create_or_read_file(path), UsageError);
  }
}

TEST_F(SecretFile, OfAnotherUserIsRefused) {
  fs::path path = "/etc/passwd";
  if (::geteuid() == 0) {
    path = write(kDigits);
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  }
  EXPECT_NE(refusal_of(path).find(" belongs to user "), std::string::npos);
}

TEST_F(SecretFile, ThatIsAPipeOrAFolderIsRefusedAtOnce) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal_of(pipe).find("is not a regular file"), std::string::npos);
  EXPECT_NE(refusal_of(folder_).find("is not a regular file"), std::string::npos);
}

TEST_F(SecretFile, BehindALinkFollowsTheSameRules) {
  const auto link = folder_ / "link";
  fs::create_symlink(write(kDigits), link);
  EXPECT_EQ(bytes_of(Secret::create_or_read_file(link)), bytes_of(Secret::from_file(link)));
  (void)write(kDigits, 0644);
  EXPECT_THROW((void)Secret::create_or_read_file(link), UsageError);
}

TEST_F(SecretFile, IsNeverCreatedThroughALink) {
  const auto target = folder_ / "elsewhere";
  const auto link = folder_ / "link";
  fs::create_symlink(target, link);
  EXPECT_THROW((void)Secret::create_or_read_file(link), SystemError);
  EXPECT_FALSE(fs::exists(target));
  EXPECT_EQ(num_files(), 1u) << "a draft was left";
}

TEST_F(SecretFile, ThatDoesNotExistIsNamed) {
  try {
    (void)Secret::from_file(folder_ / "nothing");
    FAIL() << "read a file that does not exist";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), ENOENT);
    EXPECT_NE(std::string(error.what()).find((folder_ / "nothing").string()), std::string::npos);
  }
}

TEST(SecretOfProcesses, ThatCreateItAtOnceIsTheSame) {
  // Every process must find the same folder, so its name contains the id of their common parent.
  const auto run = [](testing::Rank& self) {
    const auto folder = fs::path(::testing::TempDir()) / fmt::format("lockstep_{}", ::getppid());
    for (int i = 0; i < 40; ++i) {
      const auto path = folder / std::to_string(i) / "secret";
      self.barrier(Deadline::after(30s));
      const auto mine = Secret::create_or_read_file(path);
      self.barrier(Deadline::after(30s));
      EXPECT_EQ(bytes_of(mine), bytes_of(Secret::from_file(path))) << "file " << i;
    }
    self.barrier(Deadline::after(30s));
    if (self.rank() == 0) fs::remove_all(folder);
  };
  (void)testing::run_ranks_as_processes(4, run);
}

}  // namespace
}  // namespace lockstep
