// Slow or stuck disks, and limits of the system: such a failed save follows on_save_failure, and
// every rank gets the actual cause.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <future>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/run.h"
#include "lockstep/checkpoint/scan.h"
#include "lockstep/checkpoint/test_forwarding_file_system_internal.h"
#include "lockstep/checkpoint/test_log_internal.h"
#include "lockstep/checkpoint/test_toy_internal.h"
#include "lockstep/testing/processes.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds kTimeout{1};

// The sync of its first file returns when `opened` is ready, or after `time`. Then `closed` is set.
class SlowFileSystem final : public ForwardingFileSystem {
 public:
  SlowFileSystem(std::chrono::milliseconds time, std::shared_future<void> opened,
                 std::promise<void>& closed)
      : time_(time), opened_(std::move(opened)), closed_(closed) {}

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    auto file = ForwardingFileSystem::create(path);
    if (std::exchange(is_first_, false)) return std::make_unique<SlowFile>(std::move(file), *this);
    return file;
  }

 private:
  class SlowFile final : public OutputFile {
   public:
    SlowFile(std::unique_ptr<OutputFile> file, const SlowFileSystem& of)
        : file_(std::move(file)), of_(of) {}
    SlowFile(const SlowFile&) = delete;
    SlowFile& operator=(const SlowFile&) = delete;
    ~SlowFile() override { of_.closed_.set_value(); }
    void write_at(std::uint64_t position, std::span<const std::byte> bytes) override {
      file_->write_at(position, bytes);
    }
    void sync() override {
      (void)of_.opened_.wait_for(of_.time_);
      file_->sync();
    }

   private:
    std::unique_ptr<OutputFile> file_;
    const SlowFileSystem& of_;
  };

  const std::chrono::milliseconds time_;
  const std::shared_future<void> opened_;
  std::promise<void>& closed_;
  bool is_first_ = true;
};

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

struct Ended {
  std::int64_t step = 0;
  std::string words;  // the message of the exception, if any
};

// A run of two ranks that saves every third of 12 steps; the first save is slow on `slow_rank`.
class LateSave : public ::testing::Test {
 protected:
  void run(int slow_rank, OnSaveFailure on_save_failure, std::chrono::milliseconds time) {
    std::promise<void> never;
    run(slow_rank, on_save_failure, time, never.get_future().share(), [] {});
  }

  void run(int slow_rank, OnSaveFailure on_save_failure, std::chrono::milliseconds time,
           const std::shared_future<void>& opened, const std::function<void()>& before_finish) {
    closed = {};
    with_worlds(2, [&](const World& world) {
      const auto rank = static_cast<std::size_t>(world.rank());
      RunOptions options{.save_every = 3,
                         .on_save_failure = on_save_failure,
                         .timeout = kTimeout,
                         .log = logs[rank].log(world.rank())};
      if (world.rank() == slow_rank)
        options.files = std::make_shared<SlowFileSystem>(time, opened, closed);
      Toy toy;
      lockstep::Run run(world, folder.path(), options);
      try {
        run.track("toy", toy);
        (void)run.resume();
        while (run.step() < 12) {
          toy.train();
          (void)run.end_of_step();
        }
        before_finish();
        run.finish();
      } catch (const Error& error) {
        ended[rank].words = error.what();
      }
      ended[rank].step = run.step();
    });
  }

  // The last step is saved, and there is no unfinished folder.
  void expect_the_last_step_saved() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/checkpoints")) {
      EXPECT_FALSE(has(entry.path().filename(), ".tmp-")) << entry.path();
    }
    EXPECT_EQ(verify_step(*local_file_system(), folder.path() + "/checkpoints", 12).manifest.step,
              12);
  }

  const TestFolder folder;
  std::array<TestLog, 2> logs;
  std::array<Ended, 2> ended;
  std::promise<void> closed;  // the slow file
};

TEST_F(LateSave, EndsTheRunOnAllRanksInTheSameStepWithTheCause) {
  for (const int slow_rank : {0, 1}) {
    ended = {};
    std::filesystem::remove_all(folder.path() + "/checkpoints");
    run(slow_rank, OnSaveFailure::stop, std::chrono::milliseconds(2500));
    EXPECT_EQ(ended[0].step, ended[1].step);
    EXPECT_LT(ended[0].step, 12);
    for (const auto& [step, words] : ended) {
      EXPECT_TRUE(has(words, "the checkpoint of step 3")) << words;
      EXPECT_TRUE(has(words, fmt::format("rank {} ", slow_rank))) << words;
      EXPECT_TRUE(has(words, "timeout of 1 s")) << words;
      EXPECT_FALSE(has(words, "rendezvous")) << words;
    }
  }
}

TEST_F(LateSave, IsSkippedWithOnSaveFailureWarn) {
  for (const int slow_rank : {0, 1}) {
    ended = {};
    std::filesystem::remove_all(folder.path() + "/checkpoints");
    run(slow_rank, OnSaveFailure::warn, std::chrono::milliseconds(2500));
    EXPECT_EQ(ended[0].words, "");
    EXPECT_EQ(ended[1].words, "");
    expect_the_last_step_saved();
    EXPECT_TRUE(has(logs[0].text(), "the checkpoint of step 3 was not written"));
  }
}

// The disk is blocked far longer than all deadlines: rank 1 skips later saves and keeps training.
TEST_F(LateSave, OfAStuckDiskSkipsTheSavesUntilTheDiskAnswers) {
  std::promise<void> open;
  const auto opened = open.get_future().share();
  std::once_flag once;
  std::shared_future<void> written;
  run(1, OnSaveFailure::warn, std::chrono::minutes(10), opened, [&] {
    std::call_once(once, [&] {
      written = closed.get_future().share();
      open.set_value();
    });
    // The disk of a busy machine may need longer than the timeout of the last save.
    (void)written.wait_for(std::chrono::minutes(1));
  });
  EXPECT_EQ(ended[0].words, "");
  EXPECT_EQ(ended[1].words, "");
  expect_the_last_step_saved();
  EXPECT_TRUE(has(logs[1].text(), "still writes the checkpoint of step 3")) << logs[1].text();
  EXPECT_TRUE(has(logs[0].text(), "rank 1 still writes the checkpoint of step 3"))
      << logs[0].text();
}

// A write beyond the limit sends a signal that ends the process by default.
TEST(FileSizeLimit, FailsTheSaveAndDoesNotEndTheRank) {
  testing::run_ranks_as_processes(2, [](testing::Rank& self) {
    const auto world = world_of_processes(self.rank(), 2);
    const auto path = "/tmp/lockstep-limit-" + std::to_string(::getppid());
    std::string words;
    Toy toy;
    try {
      lockstep::Run run(world, path, {.save_every = 2});
      run.track("toy", toy);
      (void)run.resume();
      const rlimit small{1024, RLIM_INFINITY};
      if (self.rank() == 1) {
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
      }
      while (run.step() < 20) {
        toy.train();
        (void)run.end_of_step();
      }
    } catch (const Error& error) {
      words = error.what();
    }
    EXPECT_TRUE(has(words, "File too large")) << words;
    self.barrier(soon());
  });
  std::filesystem::remove_all("/tmp/lockstep-limit-" + std::to_string(::getpid()));
}

}  // namespace
}  // namespace lockstep
