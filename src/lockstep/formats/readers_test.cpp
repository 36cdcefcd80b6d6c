// The results of each reader for small files that are given here as bytes.
// tests/oracle/formats_agreement.py compares many more files with independent writers.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/formats/csv_file.h"
#include "lockstep/formats/file_kind.h"
#include "lockstep/formats/idx_file.h"
#include "lockstep/formats/jsonl_file.h"
#include "lockstep/formats/text_file.h"
#include "lockstep/formats/token_file.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

std::vector<std::string> documents(const std::string& text, const TextOptions& options) {
  const TextFile file(FileBytes::of("t", text), options);
  std::vector<std::string> all;
  for (std::uint64_t i = 0; i < file.num_documents(); ++i) all.emplace_back(file.document(i));
  return all;
}

using Texts = std::vector<std::string>;

TEST(TokenFile, ReadsAWindowFromTheMiddle) {
  const TokenFile file(FileBytes::of("t", "\x01\x00\x02\x00\xff\xff\x04\x00"s));
  std::vector<std::int64_t> window(2);
  file.read(1, window);
  EXPECT_EQ(window, (std::vector<std::int64_t>{2, 65535}));
}

TEST(IdxFile, ConvertsBigEndianElements) {
  const auto array =
      IdxFile(FileBytes::of("i", "\x00\x00\x0b\x01\x00\x00\x00\x02\x01\x02\xff\xfe"s));
  const auto bytes = array.array().bytes;
  EXPECT_EQ(array.array().type, ElementType::i16);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 2);
  EXPECT_EQ(std::to_integer<int>(bytes[1]), 1);
}

TEST(TextFile, SeparatesDocumentsAsTheOptionsSay) {
  const std::string text = "one\r\ntwo\n\n\nthree\n";
  EXPECT_EQ(documents(text, {}), Texts{text});
  EXPECT_EQ(documents(text, {.documents = DocumentBreak::line}), (Texts{"one", "two", "three"}));
  EXPECT_EQ(documents(text, {.documents = DocumentBreak::blank_line}),
            (Texts{"one\r\ntwo", "three"}));
  EXPECT_EQ(documents("a<>b<><>c", {.documents = DocumentBreak::marker, .marker = "<>"}),
            (Texts{"a", "b", "c"}));
  EXPECT_EQ(documents("", {}), Texts{});
  EXPECT_THROW(documents("a", {.documents = DocumentBreak::marker, .marker = ""}), UsageError);
}

TEST(JsonlFile, ReadsOnlyTheFieldOfTheOutermostObject) {
  const JsonlFile file(
      FileBytes::of("j", "{\"a\":{\"text\":\"no\"},\"text\":\"yes\\n\"}\n\n{\"text\":\"\"}"));
  ASSERT_EQ(file.num_documents(), 2u);
  EXPECT_EQ(file.document(0), "yes\n");
  EXPECT_EQ(file.document(1), "");
}

TEST(CsvFile, DistinguishesNamesFromNumbers) {
  const CsvFile named(FileBytes::of("c", "x,y\r\n1, 2.5 \r\n-3e2,nan\r\n"));
  EXPECT_EQ(named.names(), (Texts{"x", "y"}));
  ASSERT_EQ(named.num_rows(), 2u);
  std::vector<double> row(2);
  named.numbers(0, row);
  EXPECT_EQ(row, (std::vector<double>{1, 2.5}));
  named.numbers(1, row);
  EXPECT_EQ(row[0], -300);
  EXPECT_TRUE(std::isnan(row[1]));
  EXPECT_EQ(CsvFile(FileBytes::of("c", "1,x\n2,y\n")).num_rows(), 2u);
  EXPECT_EQ(CsvFile(FileBytes::of("c", "a;b\n1;2\n"), {.delimiter = ';'}).num_columns(), 2u);
}

TEST(FileKind, IsIdentifiedByMagicNumberThenByName) {
  const auto kind = [](const std::string& name, const std::string& bytes) {
    return identify(FileBytes::of(name, bytes));
  };
  EXPECT_EQ(kind("train-images-idx3-ubyte", "\x00\x00\x08\x03"s), FileKind::idx);
  EXPECT_EQ(kind("x", "\x93NUMPY\x01"), FileKind::npy);
  EXPECT_EQ(kind("train.bin", "\x01\x00"s), FileKind::raw_tokens);
  EXPECT_EQ(kind("data_batch_1.bin", std::string(3073, '\x03')), FileKind::cifar);
  EXPECT_EQ(kind("odd.bin", std::string(3073, '\x7f')), FileKind::raw_tokens) << "labels of 127";
  EXPECT_EQ(kind("README", "words"), FileKind::text);
  EXPECT_EQ(kind("noise", "\x01\x02\x03"), FileKind::unknown);
}

}  // namespace
}  // namespace lockstep
