#include "lockstep/formats/safetensors_header.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/test_growth_internal.h"

namespace lockstep {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
constexpr auto kF32 = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";

std::string little_endian(std::uint64_t number) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

std::string file_of(const std::string& json, std::size_t data_bytes) {
  return little_endian(json.size()) + json + std::string(data_bytes, '\x7f');
}

// A file of four bytes of data with the one tensor "w", whose object holds `fields`.
std::string one(const std::string& fields) { return file_of(R"({"w":{)" + fields + "}}", 4); }

std::string one_shape(const std::string& sizes) {
  return one(R"("dtype":"F32","shape":[)" + sizes + R"(],"data_offsets":[0,4])");
}

std::string one_offsets(const std::string& numbers) {
  return one(R"("dtype":"F32","shape":[1],"data_offsets":)" + numbers);
}

// Tensors of bytes "a", "b", … at these ranges.
std::string ranges(const std::vector<std::pair<int, int>>& pairs, std::size_t data_bytes) {
  std::string json;
  char name = 'a';
  for (const auto& [begin, end] : pairs) {
    json += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})",
                        json.empty() ? "{" : ",", name++, end - begin, begin, end);
  }
  return file_of(json + "}", data_bytes);
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_file(std::as_bytes(std::span(file)));
}

// The error message for `file`; empty, with a test failure, if it is accepted.
std::string refusal(const std::string& file) {
  try {
    (void)parse(file);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << file.substr(0, 200);
  return "";
}

void expect_refused(const std::string& file, const std::string& words) {
  const std::string message = refusal(file);
  EXPECT_NE(message.find(words), std::string::npos) << "found: " << message;
}

TEST(SafetensorsHeader, GivesTensorsInTheOrderOfTheirOffsets) {
  const auto header = parse(file_of(
      R"({"b":{"dtype":"I64","shape":[1],"data_offsets":[16,24]},)"
      R"("__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}} )",
      24));
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0], (SafetensorsEntry{"a", SafetensorsDtype::f32, {2, 2}, 0, 16}));
  EXPECT_EQ(header.entries[1], (SafetensorsEntry{"b", SafetensorsDtype::i64, {1}, 16, 24}));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
  EXPECT_EQ(header.data_offset % 8, 0u);
}

TEST(SafetensorsHeader, AcceptsScalarsZeroSizesAndNoTensorsAtAll) {
  EXPECT_TRUE(parse(file_of("{}", 0)).entries.empty());
  EXPECT_TRUE(parse(file_of("{}      ", 0)).entries.empty());
  const auto header = parse(file_of(R"({"z":{"dtype":"F32","shape":[0,7],"data_offsets":[8,8]},)"
                                    R"("e":{"dtype":"U8","shape":[0],"data_offsets":[8,8]},)"
                                    R"("s":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
                                    8));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "s");
  EXPECT_EQ(header.entries[1].name, "e") << "empty tensors at the same offset are in name order";
  EXPECT_EQ(header.entries[2].name, "z");
}

TEST(SafetensorsHeader, KnowsEveryDtypeByNameAndSize) {
  for (int i = 0; i <= static_cast<int>(SafetensorsDtype::u64); ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    const auto bytes = safetensors_dtype_bits(dtype) * 4 / 8;
    const auto header = parse(file_of(fmt::format(R"({{"w":{{"dtype":"{}","shape":[4],)"
                                                  R"("data_offsets":[0,{}]}}}})",
                                                  safetensors_dtype_name(dtype), bytes),
                                      bytes));
    EXPECT_EQ(header.entries.at(0).dtype, dtype);
  }
  EXPECT_EQ(safetensors_dtype_name(SafetensorsDtype::boolean), "BOOL");
  EXPECT_EQ(safetensors_dtype_bits(SafetensorsDtype::f6_e2m3), 6u);
}

TEST(SafetensorsHeader, AcceptsPathLikeNames) {
  for (const char* name : {"../../etc/passwd", "/dev/null", "", "a\\u0000b", "C:\\\\x"}) {
    EXPECT_EQ(parse(file_of(fmt::format(R"({{"{}":{{{}}}}})", name, kF32), 4)).entries.size(), 1u);
  }
}

TEST(SafetensorsHeader, RefusesALengthOf2To64Minus1) {
  expect_refused(std::string(8, '\xff') + "{}", "18446744073709551615");
}

TEST(SafetensorsHeader, RefusesALengthOver100Million) {
  const std::string first = little_endian(100'000'001);
  EXPECT_THROW((void)safetensors_header_length(std::as_bytes(std::span(first)),
                                               std::numeric_limits<std::uint64_t>::max()),
               UsageError);
  const std::string most = little_endian(100'000'000);
  EXPECT_EQ(safetensors_header_length(std::as_bytes(std::span(most)), 100'000'008), 100'000'000u);
}

TEST(SafetensorsHeader, RefusesALengthBeyondTheFile) {
  expect_refused(little_endian(3) + "{}", "expected at most 2 in a file of 10 bytes");
  expect_refused("1234567", "7 bytes");
  expect_refused("", "0 bytes");
}

TEST(SafetensorsHeader, RefusesBytesThatAreNotUtf8) {
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\\ud800"}) {
    expect_refused(file_of(fmt::format(R"({{"{}":{{{}}}}})", bytes, kF32), 4), "UTF-8");
  }
}

TEST(SafetensorsHeader, RefusesWhatIsNotJson) {
  for (const char* json : {"{/**/}", "{,}", "{}}", "{\"w\"}", "{\"w\":{}", "{}{}", "{'w':{}}"}) {
    (void)refusal(file_of(json, 0));
  }
}

TEST(SafetensorsHeader, RefusesNulBytesAnywhere) {
  using namespace std::string_literals;
  expect_refused(file_of("{}\0\0\0\0\0\0"s, 0), "byte 2 is NUL");
  expect_refused(file_of("{\0}"s, 0), "byte 1 is NUL");
}

TEST(SafetensorsHeader, RefusesAnythingButABraceAtTheStartAndSpacesAtTheEnd) {
  for (const char* json : {"", " {}", "\n{}", "\xef\xbb\xbf{}", "[]", "null"}) {
    expect_refused(file_of(json, 0), "start with {");
  }
  for (const char* json : {"{}\n", "{}\t ", "{}x"}) expect_refused(file_of(json, 0), "end with }");
}

TEST(SafetensorsHeader, RefusesDeepNestingAtItsFirstBracket) {
  const std::string deep(1'000'000, '[');
  expect_refused(one(R"("shape":)" + deep), "has an array");
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += R"("a":{)";
  expect_refused(file_of(objects + std::string(100'001, '}'), 0), "has the field \"a\"");
}

TEST(SafetensorsHeader, RefusesDuplicateKeysOfEveryKind) {
  const std::string tensor = fmt::format(R"("w":{{{}}})", kF32);
  expect_refused(file_of("{" + tensor + "," + tensor + "}", 4), "tensor \"w\" appears twice");
  expect_refused(file_of("{" + tensor + R"(,"\u0077":{)" + kF32 + "}}", 4), "appears twice");
  expect_refused(one(std::string(kF32) + R"(,"dtype":"I32")"), "has dtype twice");
  expect_refused(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "appears twice");
  expect_refused(file_of(R"({"__metadata__":{"a":"1","a":"1"}})", 0), "appears twice");
}

TEST(SafetensorsHeader, RefusesOverlap) {
  expect_refused(ranges({{0, 4}, {2, 6}}, 6), "\"b\" begins at byte 2 of the data, expected 4");
  expect_refused(ranges({{0, 4}, {0, 4}}, 4), "\"b\" begins at byte 0 of the data, expected 4");
}

TEST(SafetensorsHeader, RefusesAHole) {
  expect_refused(ranges({{1, 4}}, 4), "\"a\" begins at byte 1 of the data, expected 0");
  expect_refused(ranges({{0, 4}, {5, 8}}, 8), "\"b\" begins at byte 5 of the data, expected 4");
}

TEST(SafetensorsHeader, RefusesATailThatNoTensorCovers) {
  expect_refused(ranges({{0, 4}}, 8), "end at byte 4 of the data, expected 8");
  expect_refused(file_of("{}", 4), "end at byte 0 of the data, expected 4");
}

TEST(SafetensorsHeader, RefusesDataThatIsCutShort) {
  expect_refused(ranges({{0, 4}}, 3), "[0, 4), expected a range in the file's 3 bytes");
}

TEST(SafetensorsHeader, RefusesShapesWhoseProductOverflows) {
  expect_refused(one_shape("4294967296,4294967296"), "overflows");
  expect_refused(one_shape("2305843009213693952"), "overflows");
  expect_refused(one_shape("0,4294967296,4294967296"), "overflows");
  expect_refused(one_shape("4294967296,4294967296,0"), "overflows");
}

TEST(SafetensorsHeader, RefusesMoreDimensionsThanATensorCanHave) {
  std::string sizes = "1";
  for (int i = 1; i < 64; ++i) sizes += ",1";
  EXPECT_EQ(parse(one_shape(sizes)).entries.at(0).shape.size(), 64u);
  expect_refused(one_shape(sizes + ",1"), "more numbers than expected, at most 64");
}

TEST(SafetensorsHeader, RefusesNegativeAndFloatNumbers) {
  for (const char* number : {"-1", "-0", "1.0", "1e0", "18446744073709551616", "1e999", "\"1\""}) {
    expect_refused(one_shape(number), "the safetensors header is invalid");
    expect_refused(one_offsets(fmt::format("[0,{}]", number)), "the safetensors header is invalid");
  }
  expect_refused(one_offsets("[-4,0]"), "-4");
}

TEST(SafetensorsHeader, RefusesInvalidOffsets) {
  expect_refused(one_offsets("[4,0]"), "[4, 0)");
  expect_refused(one_offsets("[18446744073709551612,18446744073709551615]"), "expected a range");
  expect_refused(one_offsets("[4]"), "1 numbers, expected 2");
  expect_refused(one_offsets("[0,4,4]"), "more numbers than expected, at most 2");
}

TEST(SafetensorsHeader, RefusesASizeThatDoesNotMatchDtypeAndShape) {
  expect_refused(one_shape("2"), "takes 4 bytes of data, expected 8 for F32 of shape [2]");
  expect_refused(one(R"("dtype":"F16","shape":[1],"data_offsets":[0,4])"), "expected 2 for F16");
}

TEST(SafetensorsHeader, RefusesSubByteTensorsThatEndWithinAByte) {
  expect_refused(one(R"("dtype":"F4","shape":[7],"data_offsets":[0,4])"), "28 bits");
  expect_refused(one(R"("dtype":"F6_E3M2","shape":[5],"data_offsets":[0,4])"), "30 bits");
}

TEST(SafetensorsHeader, RefusesUnknownDtypesAndFieldsByName) {
  expect_refused(one(R"("dtype":"F128","shape":[1],"data_offsets":[0,4])"), "\"F128\"");
  expect_refused(one(std::string(kF32) + R"(,"device":"cpu")"), "\"device\"");
}

TEST(SafetensorsHeader, RefusesTensorsThatLackAField) {
  expect_refused(one(R"("shape":[1],"data_offsets":[0,4])"), "has no dtype");
  expect_refused(one(R"("dtype":"F32","data_offsets":[0,4])"), "has no shape");
  expect_refused(one(R"("dtype":"F32","shape":[1])"), "has no data_offsets");
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotStringToString) {
  for (const char* value : {"12", "null", "true", "1.5", "[]", "{}"}) {
    expect_refused(file_of(fmt::format(R"({{"__metadata__":{{"step":{}}}}})", value), 0),
                   "\"step\"");
  }
  for (const char* value : {"12", "null", "\"pt\"", "[]"}) {
    expect_refused(file_of(fmt::format(R"({{"__metadata__":{}}})", value), 0), "__metadata__");
  }
}

TEST(SafetensorsHeader, RefusesWhatTorchSaveWritesAndSaysHowToConvertIt) {
  using namespace std::string_literals;
  expect_refused("PK\x03\x04\0\0\x08\x08"s + "archive/data.pkl", "safetensors.torch.save_file");
  expect_refused("\x80\x02"s + "cposix\nsystem\nX\x04\0\0\0true\x85R."s, "never opens");
}

TEST(SafetensorsHeader, KeepsItsMessagesShortAndFreeOfControlCharacters) {
  const std::string escaped = R"(\u001b[31m\u0000\n\u00e4)";
  const std::string long_name(100'000, 'w');
  for (const auto& [name, text] : Pairs{{escaped, "1"}, {long_name, "null"}, {"w", long_name}}) {
    const std::string message = refusal(file_of(fmt::format(R"({{"{}":"{}"}})", name, text), 0));
    EXPECT_LT(message.size(), 1000u);
    for (const char c : message) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << message;
  }
}

TEST(SafetensorsHeader, BoundsTheMemoryThatATokenOrTheMetadataCanTake) {
  const std::string value(1u << 20, 'x');
  expect_refused(file_of(R"({"__metadata__":{"a":")" + value + R"("}})", 0), "1048576 bytes");
  expect_refused(file_of("{" + std::string(1u << 20, '\n') + "}", 0), "1048576 bytes");
  expect_refused(one_shape(std::string(1u << 20, '1')), "1048576 bytes");
  std::string keys = R"("k":"")";
  for (int i = 0; i < 100'000; ++i) keys += fmt::format(R"(,"{}":"")", i);
  expect_refused(file_of(R"({"__metadata__":{)" + keys + "}}", 0), "100000");
}

// `piece(i)` for i = 0, 1, … with commas between, up to `bytes`.
std::string many_of(std::size_t bytes, const std::function<std::string(int)>& piece) {
  std::string text = piece(0);
  for (int i = 1; text.size() < bytes; ++i) text += "," + piece(i);
  return text;
}

std::vector<std::string> hostile_files(std::size_t bytes) {
  const auto many = [bytes](const auto& piece) { return many_of(bytes, piece); };
  const auto tensors = [&](const std::string& name, const std::string& shape, const char* offsets) {
    return "{" + many([&](int i) {
             return fmt::format(R"("{}{}":{{"dtype":"U8","shape":[{}],"data_offsets":{}}})", name,
                                i, shape, offsets);
           }) +
           "}";
  };
  return {
      file_of(tensors("", "1", "[0,1]"), 1),                // each overlaps every other
      file_of(tensors("", "0", "[7,7]"), 1),                // none covers the data
      file_of(tensors("", "1,1,1,1,1,1,1,1", "[9,3]"), 1),  // invalid ranges
      file_of(tensors(R"(\u00e4\n)", "1", "[0,1]"), 1),     // names to be unescaped
      file_of("{" + many([](int) { return R"("w":{})"; }) + "}", 0),
      file_of(R"({"w":{)" + many([](int) { return R"("dtype":"F32")"; }) + "}}", 0),
      file_of(
          R"({"__metadata__":{)" + many([](int i) { return fmt::format(R"("{}":"")", i); }) + "}}",
          4),
      one_shape(many([](int) { return "1"; })),
      one_shape(std::string(bytes, '9')),
      file_of("{" + std::string(bytes, ' '), 0),
      file_of("{" + std::string(bytes, '['), 0),
      file_of(R"({"w":)" + std::string(bytes, '{'), 0),
      file_of(R"({")" + std::string(bytes, 'x'), 0),
      std::string(bytes, '\0'),
      std::string(bytes, '\xff'),
  };
}

TEST(SafetensorsHeader, RefusesAHostileMegabyteAtACostLinearInItsLength) {
  const auto small = hostile_files(99'900);
  const auto large = hostile_files(999'000);
  for (std::size_t i = 0; i < large.size(); ++i) {
    EXPECT_LE(large[i].size(), 1'000'100U);
    EXPECT_LT(refusal(large[i]).size(), 1000U);
    expect_linear_cost(small[i], large[i], [](const auto& file) { (void)refusal(file); });
  }
}

TEST(SafetensorsHeader, ReadsAMillionTensors) {
  const int num_tensors = 1'000'000;
  std::string json = "{";
  for (int i = 0; i < num_tensors; ++i) {
    json += fmt::format(R"("{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i, i, i + 1);
    json += i + 1 < num_tensors ? ',' : '}';
  }
  const auto start = std::chrono::steady_clock::now();
  const auto header = parse_safetensors_header(std::as_bytes(std::span(json)), num_tensors);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(header.entries.size(), static_cast<std::size_t>(num_tensors));
  // About 1 s when optimized. The limit only distinguishes linear from quadratic time, also with
  // sanitizers.
  EXPECT_LT(took.count(), 30.0);
  RecordProperty("milliseconds", static_cast<int>(took.count() * 1000));
}

}  // namespace
}  // namespace lockstep
