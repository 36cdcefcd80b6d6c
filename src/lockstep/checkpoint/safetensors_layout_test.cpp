#include "lockstep/checkpoint/safetensors_layout.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Dtype = SafetensorsDtype;

// The file of a layout, with zeros as data, parsed by the strict reader.
SafetensorsHeader read_back(const SafetensorsLayout& layout) {
  auto file = layout.head;
  file.resize(file.size() + layout.data_bytes);
  return parse_safetensors_file(file);
}

std::vector<std::string> names_of(const SafetensorsLayout& layout) {
  std::vector<std::string> names;
  for (const auto& entry : layout.entries) names.push_back(entry.name);
  return names;
}

TEST(SafetensorsLayout, PutsWideTypesFirstThenNames) {
  const auto layout = lay_out_safetensors({{"b", Dtype::f32, {2, 3}},
                                           {"a", Dtype::u8, {5}},
                                           {"c", Dtype::i64, {}},
                                           {"a.b", Dtype::f32, {1}},
                                           {"d", Dtype::bf16, {0, 7}}});
  EXPECT_EQ(names_of(layout), (std::vector<std::string>{"c", "a.b", "b", "d", "a"}));
  EXPECT_EQ(layout.sources, (std::vector<std::size_t>{2, 3, 0, 4, 1}));
  EXPECT_EQ(layout.data_bytes, 8U + 4 + 24 + 0 + 5);
  EXPECT_EQ(read_back(layout).entries, layout.entries);
}

TEST(SafetensorsLayout, BeginsTheDataAtAMultipleOfEightAndPadsWithSpaces) {
  std::set<std::size_t> paddings;
  for (std::size_t length = 1; length < 20; ++length) {
    const auto layout =
        lay_out_safetensors({{std::string(length, 'n'), Dtype::f32, {1}}}, {{"format", "pt"}});
    EXPECT_EQ(layout.head.size() % 8, 0U);
    const std::string head(reinterpret_cast<const char*>(layout.head.data()), layout.head.size());
    const auto padding = head.substr(head.rfind('}') + 1);
    EXPECT_EQ(padding, std::string(padding.size(), ' '));
    paddings.insert(padding.size());
    const auto header = read_back(layout);
    EXPECT_EQ(header.entries.front().name, std::string(length, 'n'));
    EXPECT_EQ(header.metadata.at("format"), "pt");
  }
  EXPECT_EQ(paddings, (std::set<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(SafetensorsLayout, ReadsBackNamesOfAnyKindAndNoTensorsAtAll) {
  const std::string odd = "\"\\\n\x01 größe/../x";
  EXPECT_EQ(read_back(lay_out_safetensors({{odd, Dtype::f64, {1}}})).entries.front().name, odd);
  EXPECT_TRUE(read_back(lay_out_safetensors({})).entries.empty());
}

TEST(SafetensorsLayout, RefusesInvalidNamesAndSizes) {
  EXPECT_THROW((void)lay_out_safetensors({{"a", Dtype::u8, {}}, {"a", Dtype::f32, {}}}),
               UsageError);
  EXPECT_THROW((void)lay_out_safetensors({{"__metadata__", Dtype::u8, {}}}), UsageError);
  EXPECT_THROW((void)lay_out_safetensors({{"\xff", Dtype::u8, {}}}), UsageError);
  EXPECT_THROW((void)lay_out_safetensors({{"a", Dtype::u8, {1ULL << 40, 1ULL << 40}}}), UsageError);
}

}  // namespace
}  // namespace lockstep
