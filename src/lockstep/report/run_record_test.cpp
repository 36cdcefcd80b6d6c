#include "lockstep/report/run_record.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class RunRecordTest : public ::testing::Test {
 protected:
  RunRecordTest() {
    std::string name = (fs::temp_directory_path() / "run_record_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~RunRecordTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << text;
  }
  [[nodiscard]] RunRecord read(bool active = false) const { return read_run(folder_, {}, active); }

  std::string folder_;
};

constexpr const char* kConfig =
    R"({"model":"gpt","world":2,"data":{"name":"text"},"settings":{"lr":{"value":"0.1","origin":"--lr"}}})";
constexpr const char* kFailed =
    R"({"format":"lockstep-end","version":1,"cause":"rank_failed","exit_code":137,"launcher_signal":null,
        "reason":null,"restarts":1,"culprit":{"rank":1,"host":"h","exit_code":null,"signal":"SIGKILL",
        "told_to_end":false,"uncaught":null,"last_lines":["a","b"],"stack":[]},
        "ranks":[{"rank":0,"host":"h","exit_code":1,"signal":null,"told_to_end":true},
                 {"rank":1,"host":"h","exit_code":null,"signal":"SIGKILL","told_to_end":false}]})";

TEST_F(RunRecordTest, AFolderThatIsNoRunIsRefused) {
  EXPECT_THROW((void)read(), UsageError);
  EXPECT_THROW((void)read_run(folder_ + "/missing", {}, false), UsageError);
}

TEST_F(RunRecordTest, TheOutcomeFollowsFromTheFiles) {
  write("config.json", kConfig);
  fs::create_directories(folder_ + "/launches/1/logs");
  EXPECT_EQ(read(true).outcome, RunOutcome::running);
  EXPECT_EQ(read().outcome, RunOutcome::killed);  // no end record, and nothing runs
  write("launches/1/end.json", kFailed);
  EXPECT_EQ(read().outcome, RunOutcome::failed);
  write("launches/2/end.json",
        R"({"format":"lockstep-end","cause":"finished","exit_code":0,"ranks":[]})");
  EXPECT_EQ(read().outcome, RunOutcome::stopped);  // ranks ended well before the run's length
  write("finished.json", R"({"why":"Done: 3 steps."})");
  EXPECT_EQ(read().outcome, RunOutcome::finished);
  fs::create_directories(folder_ + "/launches/10/logs");
  EXPECT_EQ(read(true).outcome, RunOutcome::running);
  EXPECT_EQ(read().launches.back().number, 10);  // a number, not a text
}

TEST_F(RunRecordTest, TheFolderOfLockstepRunIsItsOnlyLaunch) {
  fs::create_directories(folder_ + "/logs");
  EXPECT_EQ(read().outcome, RunOutcome::killed);
  write("end.json", R"({"format":"lockstep-end","cause":"finished","exit_code":0,"ranks":[]})");
  EXPECT_EQ(read().outcome, RunOutcome::finished);
  write("end.json", kFailed);
  const auto run = read();
  EXPECT_EQ(run.outcome, RunOutcome::failed);
  EXPECT_EQ(run.last_end()->culprit->how, "SIGKILL");
  EXPECT_EQ(run.last_end()->culprit->last_lines, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(run.last_end()->ranks[0].told_to_end);
}

TEST_F(RunRecordTest, SettingsLastCallsAndEnvironmentAreRead) {
  write("config.json", kConfig);
  write("launches/1/flight-world-rank1.json",
        R"({"format":"lockstep-flight-record","rank":1,"group":"world","cause":"x","calls":[
           {"number":7,"call":"barrier","state":"entered","entered_ms_ago":12.5}]})");
  write("environment.json", R"({"processor":{"name":"N1","cores":2},"gpus":[],"flags":["a","b"]})");
  const auto run = read();
  EXPECT_EQ(run.setting("lr"), "0.1");
  EXPECT_EQ(run.setting("none"), "");
  EXPECT_EQ(run.world, 2);
  const RunMetrics resumed{.events = {{.event = "start", .numbers = {{"world", 4}}}}};
  EXPECT_EQ(read_run(folder_, resumed, false).world, 4);
  ASSERT_EQ(run.launches.at(0).flights.size(), 1U);
  EXPECT_FALSE(run.launches[0].flights[0].calls[0].is_complete);
  using Row = std::pair<std::string, std::string>;
  EXPECT_EQ(
      run.environment,
      (std::vector<Row>{{"processor, name", "N1"}, {"processor, cores", "2"}, {"flags", "a, b"}}));
}

TEST_F(RunRecordTest, TruncatedFilesAreMissingParts) {
  for (const auto* name : {"config.json", "launches/1/end.json", "environment.json",
                           "finished.json", "launches/1/flight-world-rank0.json"}) {
    write(name, R"({"format":"lockstep-end","cau)");
  }
  const auto run = read();
  EXPECT_EQ(run.outcome, RunOutcome::killed);
  EXPECT_TRUE(run.settings.empty());
}

TEST_F(RunRecordTest, ARunIsActiveWhileItsLockIsHeld) {
  write("launch.lock", "");
  EXPECT_FALSE(is_active(folder_));
  const auto lock = FileDescriptor::open(folder_ + "/launch.lock", O_RDWR);
  ASSERT_EQ(::flock(lock.number(), LOCK_EX), 0);
  EXPECT_TRUE(is_active(folder_));
}

}  // namespace
}  // namespace lockstep
