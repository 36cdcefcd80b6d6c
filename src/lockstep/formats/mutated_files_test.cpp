// Tests every reader with damaged files: 200 mutations of each valid seed of the fuzz corpus, the
// same in every run. Each file is refused with a UsageError or read completely, in bounded memory.
// Also run with the address and undefined-behavior sanitizers.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/formats/read_whole_internal.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Seed {
  std::string name;
  Reader reader;
  std::string bytes;
};

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_FORMATS_CORPUS)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    all.push_back({entry.path().filename(), static_cast<Reader>(bytes.at(0)), bytes.substr(1)});
  }
  return all;
}

// Applies one to four faults: a flipped bit, a byte with an extreme value, a truncation, inserted
// or removed bytes.
std::string mutate(std::string bytes, RandomStream& random) {
  constexpr std::string_view sharp("\x00\x01\x7f\x80\xff\xfe\x22\x0a", 8);
  for (auto faults = 1 + random.below(4); faults > 0 && !bytes.empty(); --faults) {
    // Headers are the critical part: half of the faults go there.
    const auto reach =
        random.below(2) == 0 ? std::min<std::size_t>(bytes.size(), 128) : bytes.size();
    const auto at = random.below(reach);
    switch (random.below(5)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 1:
        bytes[at] = sharp[random.below(sharp.size())];
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(at, 1 + random.below(9), sharp[random.below(sharp.size())]);
        break;
      default:
        bytes.erase(at, 1 + random.below(9));
        break;
    }
  }
  return bytes;
}

std::int64_t peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Readers, AcceptEveryValidSeedAndRefuseEveryInvalidOne) {
  const auto all = seeds();
  ASSERT_GE(all.size(), 50u);
  for (const auto& seed : all) {
    const auto file = FileBytes::of(seed.name, seed.bytes);
    if (seed.name.starts_with("valid_")) {
      EXPECT_NO_THROW((void)read_whole(seed.reader, file)) << seed.name;
    } else {
      EXPECT_THROW((void)read_whole(seed.reader, file), UsageError) << seed.name;
    }
  }
}

TEST(Readers, RefuseOrReadEveryMutatedFileInBoundedMemory) {
  const auto before = peak_kib();
  int num_refused = 0;
  int num_read = 0;
  for (const auto& seed : seeds()) {
    if (!seed.name.starts_with("valid_")) continue;
    for (std::uint64_t round = 0; round < 200; ++round) {
      RandomStream random({.seed = 7, .purpose = random_purpose(seed.name)}, round, 0);
      const auto file = FileBytes::of("mutated", mutate(seed.bytes, random));
      try {
        (void)read_whole(seed.reader, file);
        ++num_read;
      } catch (const UsageError&) {
        ++num_refused;
      }
    }
  }
  EXPECT_GT(num_refused, 2000);
  EXPECT_GT(num_read, 100);  // text and raw tokens are valid for any bytes
  // The largest seed has 6 KB, which deflate can expand to 6 MB; sanitizers keep freed memory.
  EXPECT_LT(peak_kib() - before, 512 * 1024);
}

}  // namespace
}  // namespace lockstep
