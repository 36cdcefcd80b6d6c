#include "lockstep/report/flat_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

TEST(FlatLine, GivesTheSameFieldsAsAJsonParser) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> real(-1e6, 1e6);
  FlatLine line;
  for (int round = 0; round < 2000; ++round) {
    nlohmann::ordered_json json;
    for (int field = 0; field < static_cast<int>(random() % 8); ++field) {
      const auto name = "f" + std::to_string(field);
      switch (random() % 5) {
        case 0:
          json[name] = real(random);
          break;
        case 1:
          json[name] = static_cast<std::int64_t>(random());
          break;
        case 2:
          json[name] = nullptr;
          break;
        case 3:
          json[name] = std::ldexp(real(random), static_cast<int>(random() % 400) - 200);
          break;
        default:
          json[name] = "a\"b\\c\n\xC3\xA9" + std::to_string(random() % 100);
          break;
      }
    }
    const auto text = json.is_null() ? std::string("{}") : json.dump();
    ASSERT_TRUE(line.parse(text)) << text;
    ASSERT_EQ(line.fields().size(), json.is_null() ? 0 : json.size()) << text;
    for (const auto& field : line.fields()) {
      const auto& expected = json[std::string(field.name)];
      ASSERT_EQ(field.is_text, expected.is_string()) << text;
      if (expected.is_string()) {
        ASSERT_EQ(unescaped(field.text), expected.get<std::string>());
      } else if (expected.is_null()) {
        ASSERT_TRUE(std::isnan(field.number));
      } else {
        ASSERT_EQ(field.number, expected.get<double>()) << text;
      }
    }
  }
}

TEST(FlatLine, RefusesWhatIsNotAFlatObject) {
  FlatLine line;
  for (const auto* text :
       {"", "[]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1", "{\"a\":1,}", "{\"a\":[1]}", "{\"a\":{}}",
        "{\"a\":1}x", "{\"a\":\"b}", "{\"a\":\"b\\", "{\"a\":tru}", "{a:1}", "nonsense"}) {
    EXPECT_FALSE(line.parse(text)) << text;
  }
  EXPECT_TRUE(line.parse(" { \"a\" : 1 , \"b\" : true } \r"));
  EXPECT_EQ(line.find("b")->number, 1);
  EXPECT_EQ(line.find("c"), nullptr);
}

}  // namespace
}  // namespace lockstep
