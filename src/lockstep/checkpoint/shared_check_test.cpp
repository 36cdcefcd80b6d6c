// Verification that the ranks of a host divide finds what a single reader finds, on each host.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/commit.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/shared_check_internal.h"
#include "lockstep/checkpoint/test_forwarding_file_system_internal.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kElements = 20'000;  // 20 pages
constexpr std::array kPlaces{0.0, 0.3, 0.5, 0.7, 0.999};

void flip_a_bit(std::string& bytes, double place) {
  bytes[static_cast<std::size_t>(place * static_cast<double>(bytes.size()))] ^= 16;
}

// Resumes and makes steps up to `last`, each saved. Returns the step it resumed from.
std::int64_t train(const World& world, const std::string& folder, std::int64_t last,
                   std::shared_ptr<FileSystem> files, const Log& log) {
  Toy toy;
  toy.weight = at::zeros({kElements}, at::kFloat);
  Run run(world, folder, {.save_every = 1, .log = log, .files = std::move(files)});
  run.track("toy", toy);
  const auto from = run.resume();
  EXPECT_TRUE(toy.is_after(from));
  while (run.step() < last) {
    toy.train();
    (void)run.end_of_step();
  }
  return from;
}

TEST(SharedCheck, SlicesOfAFileAddUpToItsDigest) {
  const TestFolder folder;
  Manifest manifest{.step = 1};
  for (const std::size_t bytes : {0U, 1U, 4095U, 4096U, 4097U, 20'003U, 81'920U}) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * i + i / 7);
    const auto span = std::as_bytes(std::span(text));
    manifest.files.push_back(write_durably(*local_file_system(), folder.path(),
                                           part_file(std::to_string(bytes)), std::span(&span, 1)));
    EXPECT_EQ(manifest.files.back().digest, digest(span));
  }
  const ValidCheckpoint checkpoint{folder.path(), manifest};
  for (const int count : {1, 2, 3, 5, 64}) {
    std::vector<std::uint64_t> sums(manifest.files.size());
    for (int index = 0; index < count; ++index) {
      const auto own = digest_files(*local_file_system(), checkpoint, {index, count});
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += own[i];
    }
    EXPECT_EQ(digest_fault(checkpoint, sums), "") << count;
  }
}

TEST(SharedCheck, DamageAnywhereInAFileIsFoundAndAllRanksFallBack) {
  const TestFolder original;
  with_worlds(3, [&](const World& world) {
    (void)train(world, original.path(), 2, local_file_system(), TestLog().log(world.rank()));
  });
  for (const auto place : kPlaces) {
    const TestFolder copy;
    fs::copy(original.path(), copy.path(), fs::copy_options::recursive);
    const auto path = copy.path() + "/checkpoints/step-2/toy.safetensors";
    std::string bytes(local_file_system()->read(path).text());
    flip_a_bit(bytes, place);
    std::ofstream(path, std::ios::binary) << bytes;
    with_worlds(3, [&](const World& world) {
      const TestLog log;
      EXPECT_EQ(train(world, copy.path(), 1, local_file_system(), log.log(world.rank())), 1);
      EXPECT_NE(log.text().find("skipped the checkpoint of step 2: " + path + " has the digest"),
                std::string::npos)
          << log.text();
    });
  }
}

// One host's view of step 2, in which a bit of the toy's file is wrong, or the file is unreadable.
class DamagedFileSystem final : public ForwardingFileSystem {
 public:
  explicit DamagedFileSystem(std::optional<double> place) : place_(place) {}
  FileBytes read(const std::string& path) override {
    if (!path.ends_with("toy.safetensors")) return ForwardingFileSystem::read(path);
    if (!place_) throw SystemError("cannot read " + path, EIO);
    std::string bytes(ForwardingFileSystem::read(path).text());
    flip_a_bit(bytes, *place_);
    return FileBytes::of(path, bytes);
  }

 private:
  std::optional<double> place_;  // empty: unreadable
};

// The result of shared_check() on each of 4 ranks, on two hosts. Those of the second host read
// through `second`. The group itself is on one host.
std::vector<std::string> check_on_two_hosts(const std::string& path,
                                            const std::shared_ptr<FileSystem>& second) {
  std::vector<std::string> faults(4);
  const auto point = MeetingPoint::of_threads();
  const auto server = point.serve();
  with_worlds(4, [&](const World& world) {
    Placement placement;
    placement.rank = world.rank();
    placement.size = world.size();
    const bool is_second = world.rank() >= 2;
    const auto hosts =
        meet(point.connect(world.rank()), placement, soon(), is_second ? "host b" : "host a");
    EXPECT_EQ(hosts.num_hosts(), 2);
    const ProcessGroup group(world);
    const auto files = is_second ? second : local_file_system();
    faults[static_cast<std::size_t>(world.rank())] =
        shared_check(*files, read_manifest(*local_file_system(), path), hosts, group);
    group.barrier().wait();
  });
  return faults;
}

TEST(SharedCheck, EachHostReadsEveryByte) {
  const TestFolder folder;
  with_worlds(2, [&](const World& world) {
    (void)train(world, folder.path(), 1, local_file_system(), TestLog().log(world.rank()));
  });
  const auto path = folder.path() + "/checkpoints/step-1";
  for (const auto& fault : check_on_two_hosts(path, local_file_system())) EXPECT_EQ(fault, "");
  for (const auto place : kPlaces) {
    const auto faults = check_on_two_hosts(path, std::make_shared<DamagedFileSystem>(place));
    for (const auto& fault : faults) {
      EXPECT_TRUE(fault.starts_with(path + "/toy.safetensors has the digest")) << fault;
      EXPECT_EQ(fault, faults.front());
    }
  }
  const auto unreadable = std::make_shared<DamagedFileSystem>(std::nullopt);
  for (const auto& fault : check_on_two_hosts(path, unreadable)) {
    EXPECT_TRUE(fault.starts_with("rank 2: cannot read " + path)) << fault;
  }
}

}  // namespace
}  // namespace lockstep
