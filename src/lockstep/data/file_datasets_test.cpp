// Files as data sets: the tests write small files by hand and compare every sample.
#include "lockstep/data/file_datasets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

class FileDatasets : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const auto path = testing::TempDir() + "file_datasets_" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // All samples in file order.
  static RowsBuffer& read_all(const Dataset& data, RowsBuffer& buffer) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(data.size()));
    std::iota(indices.begin(), indices.end(), 0);
    data.read(indices, buffer.rows(data.size()));
    return buffer;
  }

  template <typename T>
  static std::vector<T> column(const Dataset& data, int field) {
    RowsBuffer buffer(data.layout(), data.size());
    const auto values = read_all(data, buffer).rows(data.size()).values<T>(field);
    return {values.begin(), values.end()};
  }

  static std::string message_of(auto&& call) {
    try {
      call();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "(accepted)";
  }
};

using Longs = std::vector<std::int64_t>;
using Floats = std::vector<float>;

TEST_F(FileDatasets, TokensAreWindowsWithTheNextTokenAsTarget) {
  const auto path = write("tokens.bin", "\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00"s);
  const auto data = open_dataset({path}, {.windows = {.window = 2}});
  EXPECT_EQ(data->size(), 2);
  EXPECT_EQ(column<std::int64_t>(*data, 0), (Longs{1, 2, 3, 4}));
  EXPECT_EQ(column<std::int64_t>(*data, 1), (Longs{2, 3, 4, 5}));
}

TEST_F(FileDatasets, IdxFilesAreImagesAndLabelsInEitherOrder) {
  const auto images = write("images-idx",
                            "\x00\x00\x08\x03\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00"
                            "\x00\x02\x00\x33\x66\xff"s);
  const auto labels = write("labels-idx", "\x00\x00\x08\x01\x00\x00\x00\x02\x07\x01"s);
  const auto data = open_dataset({labels, images}, {});
  EXPECT_EQ(describe(data->layout()), "input: Byte [1, 1, 2], target: Long");
  EXPECT_EQ(column<std::uint8_t>(*data, 0), (std::vector<std::uint8_t>{0, 0x33, 0x66, 255}));
  EXPECT_EQ(column<std::int64_t>(*data, 1), (Longs{7, 1}));
  const auto floats = idx_dataset(images, labels, Normalization{.mean = {0.0}, .stddev = {0.5}});
  const auto values = column<float>(*floats, 0);
  const Floats wanted{0.0F, 0.4F, 0.8F, 2.0F};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(values[i], wanted[i], 1e-6) << "the tolerance covers two roundings of float";
  }
  EXPECT_EQ(floats->id(), data->id()) << "the same data";
  EXPECT_NE(
      message_of([&] { (void)idx_dataset(labels, labels); }).find("found uint8[2] and uint8[2]"),
      std::string::npos);
}

TEST_F(FileDatasets, CifarFilesFollowEachOther) {
  const auto one = write("one.bin", "\x03"s + std::string(3072, '\x01'));
  const auto two = write("two.bin", "\x09"s + std::string(3072, '\x02'));
  const auto data = open_dataset({one, two}, {});
  EXPECT_EQ(describe(data->layout()), "input: Byte [3, 32, 32], target: Long");
  EXPECT_EQ(column<std::int64_t>(*data, 1), (Longs{3, 9}));
  EXPECT_EQ(column<std::uint8_t>(*data, 0).at(3072), 2);
  EXPECT_NE(open_dataset({two, one}, {})->id(), data->id()) << "sample 0 is different";
}

TEST_F(FileDatasets, SafetensorsAreFieldsWithoutACopy) {
  const std::string header = R"({"input":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("target":{"dtype":"I64","shape":[2],"data_offsets":[8,24]}})";
  const std::string data_bytes =
      "\x00\x00\x80\x3f\x00\x00\x00\xc0\x05\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00"s;
  const auto path = write("x.safetensors", static_cast<char>(header.size()) + std::string(7, '\0') +
                                               header + data_bytes);
  const auto data = open_dataset({path}, {});
  EXPECT_EQ(column<float>(*data, 0), (Floats{1.0F, -2.0F}));
  EXPECT_EQ(column<std::int64_t>(*data, 1), (Longs{5, 6}));
  EXPECT_EQ(array_dataset(path, {"target"})->layout().num_fields(), 1);
}

TEST_F(FileDatasets, TablesHaveNumbersAndATarget) {
  const auto named = write("a.csv", "w,h,kind\n1,2,cat\n3,4.5,ant\n5,6,cat\n");
  const auto data = open_dataset({named}, {});
  EXPECT_EQ(column<float>(*data, 0), (Floats{1, 2, 3, 4.5, 5, 6}));
  EXPECT_EQ(column<std::int64_t>(*data, 1), (Longs{1, 0, 1})) << "ant 0, cat 1";
  const auto numbers = write("b.csv", "0.5,1\n1.5,2\n");
  EXPECT_EQ(column<std::int64_t>(*csv_dataset(numbers), 1), (Longs{1, 2}));
  EXPECT_EQ(column<float>(*csv_dataset(numbers, {.target = "1"}), 1), (Floats{0.5, 1.5}));
  EXPECT_NE(message_of([&] {
              (void)csv_dataset(named, {.target = "kin"});
            }).find("has no column \"kin\""),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              (void)csv_dataset(named, {.target = "w"});
            }).find("expected a number in column 3 (\"kind\"), found \"cat\""),
            std::string::npos);
}

TEST_F(FileDatasets, TextIsRefusedWithTheTokenizersCommand) {
  const auto path = write("a.txt", "words");
  EXPECT_NE(message_of([&] { (void)open_dataset({path}, {}); }).find("lockstep data tokenize"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
