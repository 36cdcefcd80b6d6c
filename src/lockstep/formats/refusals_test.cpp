// The error messages for invalid files: the file, the byte, what was expected and what was found.
// They are collected here so that they can be compared.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/formats/cifar_file.h"
#include "lockstep/formats/csv_file.h"
#include "lockstep/formats/idx_file.h"
#include "lockstep/formats/jsonl_file.h"
#include "lockstep/formats/npz_file.h"
#include "lockstep/formats/safetensors_file.h"
#include "lockstep/formats/token_file.h"

namespace lockstep {
namespace {

using namespace std::string_literals;

template <typename Read>
std::string message_of(const std::string& name, const std::string& bytes, Read read) {
  try {
    read(FileBytes::of(name, bytes));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(accepted)";
}

std::string npy(const std::string& header, const std::string& data = "") {
  return "\x93NUMPY\x01\x00"s + static_cast<char>(header.size()) + '\0' + header + data;
}

std::string words(std::initializer_list<std::int32_t> first) {
  std::string bytes(1024, '\0');
  std::size_t at = 0;
  for (const auto word : first) {
    for (unsigned i = 0; i < 4; ++i) {
      bytes[at++] = static_cast<char>(static_cast<std::uint32_t>(word) >> (8 * i));
    }
  }
  return bytes;
}

void read_llmc(const FileBytes& file) { (void)TokenFile(file, TokenLayout::llmc); }
void read_idx(const FileBytes& file) { (void)IdxFile(file); }
void read_npy(const FileBytes& file) { (void)NpyFile(file); }
void read_csv_numbers(const FileBytes& file) {
  const CsvFile table(file);
  std::vector<double> row(table.num_columns());
  for (std::uint64_t i = 0; i < table.num_rows(); ++i) table.numbers(i, row);
}

TEST(Refusals, OfTokensNameWidthMagicVersionAndCount) {
  EXPECT_EQ(message_of("t.bin", "abc", [](const auto& f) { (void)TokenFile(f); }),
            "t.bin, byte 2: expected tokens of 2 bytes, found 1 left over");
  EXPECT_EQ(message_of("t.bin", "abc", read_llmc),
            "t.bin, byte 0: expected the llm.c header (1024 bytes), found the end of the file at "
            "byte 3");
  EXPECT_EQ(message_of("t.bin", words({5, 1, 0}), read_llmc),
            "t.bin, byte 0: expected the llm.c magic number 20240520 (uint16) or 20240801 "
            "(uint32), found "
            "5");
  EXPECT_EQ(message_of("t.bin", words({20240520, 3, 0}), read_llmc),
            "t.bin, byte 4: expected version 1 after magic number 20240520, found 3");
  EXPECT_EQ(message_of("t.bin", words({20240520, 1, 9}) + "abcd", read_llmc),
            "t.bin, byte 8: the header claims 9 tokens of 2 bytes, found 4 bytes after it");
}

TEST(Refusals, OfIdxNameMagicSizesAndLength) {
  EXPECT_EQ(message_of("i", "\x00\x00\x07\x01"s, read_idx),
            "i, byte 0: expected the IDX magic number (0x00000803 for images, 0x00000801 for "
            "labels), found 0x00000701");
  EXPECT_EQ(message_of("i",
                       "\x00\x00\x08\x01\x00\x00\x00\x05"
                       "abc"s,
                       read_idx),
            "i, byte 8: expected uint8[5] (5 bytes), found 3 bytes");
  EXPECT_EQ(message_of("i", "\x00\x00\x08\x02\xff\xff\xff\xff\xff\xff\xff\xff"s, read_idx),
            "i, byte 4: expected sizes of less than 2^63 bytes in total, found more");
}

TEST(Refusals, OfCifarNameRecordAndLabel) {
  const auto read = [](const auto& f) { (void)CifarFile(f); };
  EXPECT_EQ(message_of("c", std::string(3075, '\0'), read),
            "c, byte 3073: expected records of 3073 bytes (CIFAR-10: 3073, CIFAR-100: 3074), found "
            "2 bytes left over");
  EXPECT_EQ(message_of("c", "\x0b"s + std::string(3072, '\0'), read),
            "c, byte 0: expected the label of image 0 to be below 10, found 11");
}

TEST(Refusals, OfNpyNameTypeOrderAndShape) {
  EXPECT_EQ(message_of("a.npy", "hello", read_npy),
            "a.npy, byte 0: expected the npy magic string \"\\x93NUMPY\", found \"hello\"");
  EXPECT_EQ(message_of("a.npy", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"),
                       read_npy),
            "a.npy, byte 10: expected a little-endian number type (b1, u1 to u8, i1 to i8, f2 to "
            "f8), found \"|O\": an array of objects is a pickle, which runs code when read; save "
            "numbers");
  EXPECT_EQ(message_of("a.npy", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }"),
                       read_npy),
            "a.npy, byte 10: expected C order (row-major), found Fortran order; save "
            "numpy.ascontiguousarray(array)");
  EXPECT_EQ(
      message_of("a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"),
                 read_npy),
      "a.npy, byte 67: expected float32[2] (8 bytes), found 4 bytes");
}

TEST(Refusals, OfCsvNameLineAndColumn) {
  EXPECT_EQ(message_of("t.csv", "a,b\n1,2\n3\n", read_csv_numbers),
            "t.csv, byte 8: line 3: expected 2 fields as in the first row, found 1");
  EXPECT_EQ(message_of("t.csv", "a,b\n1,2\n3,x\n", read_csv_numbers),
            "t.csv, byte 8: line 3: expected a number in column 2 (\"b\"), found \"x\"");
  EXPECT_EQ(message_of("t.csv", "1,\"2", read_csv_numbers),
            "t.csv, byte 2: line 1: expected a closing quote, found the end of the file");
}

TEST(Refusals, OfJsonLinesNameDocumentAndField) {
  const auto read = [](const auto& f) { (void)JsonlFile(f).document(1); };
  const std::string first = "{\"text\":\"a\"}\n";
  EXPECT_EQ(message_of("j", first + "{\"txt\":1}", read),
            "j, byte 13: document 1: expected a field \"text\", found none");
  EXPECT_EQ(message_of("j", first + "{\"text\":[]}", read),
            "j, byte 13: document 1: expected \"text\" to be a string, found an array");
}

TEST(Refusals, OfMissingArraysListTheExistingOnes) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string file =
      static_cast<char>(header.size()) + std::string(7, '\0') + header + "1234";
  EXPECT_EQ(
      message_of("m.safetensors", file, [](const auto& f) { (void)SafetensorsFile(f).array("b"); }),
      "m.safetensors has no tensor \"b\"; it has \"a\"");
}

}  // namespace
}  // namespace lockstep
