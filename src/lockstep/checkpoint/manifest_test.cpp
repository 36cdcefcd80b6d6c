#include "lockstep/checkpoint/manifest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/test_growth_internal.h"
#include "lockstep/kernels/digest.h"

namespace lockstep {
namespace {

Manifest example() {
  return {
      .lockstep_version = "0.1.0",
      .step = 1200,
      .world = 4,
      .threads = 2,
      .seed = std::numeric_limits<std::uint64_t>::max(),
      .data_id = 0xfedcba9876543210,
      .failures = 3,
      .reason = SaveReason::stop,
      .kept_as = {"best", "epoch-3"},
      .configuration = R"({"lr":0.001,"name":"größe"})",
      .states = {{"sampler", R"({"epoch":2})"}, {"schedule", R"([1.5,null,true])"}},
      .files = {{"model.safetensors", 1024, 0xffffffffffffffff}, {"rank-00000.safetensors", 0, 0}}};
}

// The error message for `text`.
std::string refusal(const std::string& text) {
  try {
    (void)manifest_from_text(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

// `body` up to its last member, with a matching digest.
std::string sealed(const std::string& body) {
  return body + fmt::format(",\n \"manifest_digest\": \"{:016x}\"\n}}\n",
                            digest(std::as_bytes(std::span(body))));
}

std::string body_of(const Manifest& manifest) {
  const auto text = to_text(manifest);
  return text.substr(0, text.rfind(",\n \"manifest_digest\""));
}

// The example with one piece of its text replaced, with a matching digest.
std::string with(const std::string& from, const std::string& to) {
  auto body = body_of(example());
  const auto at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return sealed(body.replace(at, from.size(), to));
}

TEST(Manifest, ReadsWhatItWrites) {
  EXPECT_EQ(manifest_from_text(to_text(example())), example());
  EXPECT_EQ(manifest_from_text(to_text(Manifest{})), Manifest{});
  EXPECT_EQ(sealed(body_of(example())), to_text(example()));
}

TEST(Manifest, RefusesEveryFlippedBitAndEveryTruncation) {
  const auto text = to_text(example());
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      auto flipped = text;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      EXPECT_NE(refusal(flipped), "accepted") << "byte " << at << " bit " << bit;
    }
    EXPECT_NE(refusal(text.substr(0, at)), "accepted") << "cut at " << at;
  }
  EXPECT_NE(refusal(text + "\n"), "accepted");
}

TEST(Manifest, RefusesInvalidFieldsAndNamesThem) {
  const std::pair<std::string, std::string> cases[] = {
      {with("\"step\": 1200", "\"step\": -1"), "step of the manifest is -1, expected"},
      {with("\"step\": 1200", "\"step\": 1.5"), "step of the manifest is number"},
      {with("\"step\": 1200", "\"step\": 18446744073709551615"), "expected a whole number"},
      {with("\"step\": 1200", "\"step\": 1e999"), "is out of range"},
      {with("\"step\": 1200", "\"step\": 1,\"step\": 2"), "\"step\" occurs twice"},
      {with("\"step\": 1200", "\"sty\": 1200"), "has no step"},
      {with("\"step\": 1200", "\"step\": 1200, \"more\": 1"), "has the field \"more\""},
      {with("\"world\": 4", "\"world\": 0"), "world of the manifest is 0"},
      {with("format_version\": 1", "format_version\": 2"), "this lockstep reads 1; use a newer"},
      {with("lockstep checkpoint", "other"), "format is \"other\", expected"},
      {with("\"stop\"", "\"boredom\""), "reason is \"boredom\", expected periodic"},
      {with("\"epoch-3\"", "\"../best\""), "kept_as has \"../best\", expected names"},
      {with("\"epoch-3\"", "3"), "kept_as has number, expected names"},
      {with("\"fedcba9876543210\"", "\"0xfe\""), "data_id of the manifest is \"0xfe\""},
      {with("\"18446744073709551615\"", "\"18446744073709551616\""), "below 2^64"},
      {with("model.safetensors", "../model.safetensors"), "expected a plain name"},
      {with("model.safetensors", "model.bin"), "expected a plain name"},
      {with("model.safetensors", "rank-00000.safetensors"), "is listed twice"},
      {with("\"sampler\"", "\"a/b\""), "which is not a valid part name"},
      {sealed("[1"), "not valid UTF-8 JSON"},
      {sealed("{\"a\": \"\xff\""), "not valid UTF-8 JSON"},
      {"", "it has 0 bytes"},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_NE(refusal(text).find(words), std::string::npos) << words << "\n" << refusal(text);
  }
}

TEST(Manifest, RefusesToWriteInvalidJson) {
  auto manifest = example();
  manifest.configuration = "{";
  EXPECT_THROW((void)to_text(manifest), UsageError);
  manifest = example();
  manifest.states["sampler"] = "{\"a\":1,\"a\":2}";
  EXPECT_THROW((void)to_text(manifest), UsageError);
}

std::vector<std::string> hostile_texts(std::size_t bytes) {
  std::string keys = "{\"a\":{";
  for (int i = 0; keys.size() < bytes; ++i) keys += fmt::format("\"{}\":0,", i);
  keys += "\"z\":0}";
  std::string files = body_of(example());
  files.resize(files.find("\"files\""));
  files += "\"files\": [{}";
  while (files.size() < bytes) files += ",{}";
  return {
      sealed(std::string(bytes, '[')),
      sealed("{\"a\":" + std::string(bytes, '[')),
      sealed(keys),
      sealed(files + "]"),
      sealed("{\"a\":\"" + std::string(bytes, 'x') + "\""),
      sealed("{\"a\":" + std::string(bytes, '9')),
      std::string(bytes, '\0'),
      std::string(bytes, '\xff'),
  };
}

TEST(Manifest, RefusesAHostileMegabyteAtACostLinearInItsLength) {
  const auto small = hostile_texts(100'000);
  const auto large = hostile_texts(1'000'000);
  for (std::size_t i = 0; i < large.size(); ++i) {
    const auto message = refusal(large[i]);
    EXPECT_NE(message, "accepted");
    EXPECT_LT(message.size(), 2000U);
    expect_linear_cost(small[i], large[i], [](const auto& text) { (void)refusal(text); });
  }
}

}  // namespace
}  // namespace lockstep
