#include "models/gpt_shape.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::models {
namespace {

struct Shape {
  std::string_view name;
  GptOptions options;
};

constexpr std::array<Shape, 5> kShapes{{
    {"tiny", {.vocabulary = 256, .context = 128, .layers = 4, .heads = 4, .width = 128}},
    {"small", {.layers = 12, .heads = 12, .width = 768}},
    {"medium", {.layers = 24, .heads = 16, .width = 1024}},
    {"large", {.layers = 36, .heads = 20, .width = 1280}},
    {"xl", {.layers = 48, .heads = 25, .width = 1600}},
}};

}  // namespace

GptOptions gpt_shape(std::string_view size) {
  std::string known;
  for (const auto& shape : kShapes) {
    if (shape.name == size) return shape.options;
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw UsageError(fmt::format("\"{}\" is not a GPT size: use one of {}.", size, known));
}

std::int64_t num_parameters(const GptOptions& options) {
  const auto width = options.width;
  const auto block = 12 * width * width + 13 * width;  // four matrices with biases, two norms
  const auto embeddings = (options.vocabulary + options.context) * width;
  const auto head = options.head == GptHead::tied ? 0 : options.vocabulary * width;
  return embeddings + options.layers * block + 2 * width + head;
}

}  // namespace lockstep::models
