#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/train/schedule.h"
#include "lockstep/train/schedule_pieces_internal.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Length = std::optional<std::int64_t>;

double part(std::int64_t step, std::int64_t steps) {
  return static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
}

double value(const Constant& piece, std::int64_t) { return piece.value; }
double value(const LinearWarmup& piece, std::int64_t step) {
  return piece.from + (1 - piece.from) * part(step + 1, piece.steps);
}
double value(const Cosine& piece, std::int64_t step) {
  if (step >= piece.steps) return piece.min_lr_ratio;  // exact; cos(pi) may be rounded
  const double wave = (1 + std::cos(std::numbers::pi * part(step, piece.steps))) / 2;
  return piece.min_lr_ratio + (1 - piece.min_lr_ratio) * wave;
}
double value(const LinearDecay& piece, std::int64_t step) {
  if (step >= piece.steps) return piece.min_lr_ratio;
  return 1 + (piece.min_lr_ratio - 1) * part(step, piece.steps);
}
double value(const StepDecay& piece, std::int64_t step) {
  return std::pow(piece.factor, static_cast<double>(step / piece.every));
}
double value(const Product& piece, std::int64_t step) {
  return piece.left->at(step) * piece.right->at(step);
}
double value(const Sequence& piece, std::int64_t step) {
  return step < piece.begin ? piece.first->at(step) : piece.next->at(step - piece.begin);
}

Length length_of(const Constant&) { return 0; }
Length length_of(const LinearWarmup& piece) { return piece.steps; }
Length length_of(const Cosine& piece) { return piece.steps; }
Length length_of(const LinearDecay& piece) { return piece.steps; }
Length length_of(const StepDecay&) { return {}; }
Length length_of(const Product& piece) {
  const auto left = piece.left->length();
  const auto right = piece.right->length();
  return left && right ? std::max(left, right) : Length();
}
Length length_of(const Sequence& piece) {
  const auto next = piece.next->length();
  return next ? piece.begin + *next : Length();
}

std::string words(const Constant& piece) { return fmt::format("{}", piece.value); }
std::string words(const LinearWarmup& piece) {
  const auto from = piece.from == 0 ? std::string() : fmt::format(" from {}", piece.from);
  return fmt::format("linear warm-up{} over {} steps", from, piece.steps);
}
std::string words(const Cosine& piece) {
  return fmt::format("cosine over {} steps to {}", piece.steps, piece.min_lr_ratio);
}
std::string words(const LinearDecay& piece) {
  return fmt::format("linear decay over {} steps to {}", piece.steps, piece.min_lr_ratio);
}
std::string words(const StepDecay& piece) {
  return fmt::format("times {} every {} steps", piece.factor, piece.every);
}
std::string words(const Product& piece) {
  const auto left = piece.left->describe();
  const bool is_sequence = left.find(", then ") != std::string::npos;
  return fmt::format(fmt::runtime(is_sequence ? "({}) × ({})" : "{} × ({})"), left,
                     piece.right->describe());
}
std::string words(const Sequence& piece) {
  return fmt::format("{}, then {}", piece.first->describe(), piece.next->describe());
}

Json json_of(const Constant& piece) { return {{"kind", "constant"}, {"value", piece.value}}; }
Json json_of(const LinearWarmup& piece) {
  return {{"kind", "linear_warmup"}, {"steps", piece.steps}, {"from", piece.from}};
}
Json json_of(const Cosine& piece) {
  return {{"kind", "cosine"}, {"steps", piece.steps}, {"min_lr_ratio", piece.min_lr_ratio}};
}
Json json_of(const LinearDecay& piece) {
  return {{"kind", "linear_decay"}, {"steps", piece.steps}, {"min_lr_ratio", piece.min_lr_ratio}};
}
Json json_of(const StepDecay& piece) {
  return {{"kind", "step_decay"}, {"every", piece.every}, {"factor", piece.factor}};
}
Json json_of(const Product& piece) {
  return {{"kind", "product"}, {"left", piece.left->to_json()}, {"right", piece.right->to_json()}};
}
Json json_of(const Sequence& piece) {
  return {{"kind", "then"}, {"first", piece.first->to_json()}, {"next", piece.next->to_json()}};
}

constexpr int kMaxDepth = 100;  // of nested pieces, so that no file can exhaust the stack

Schedule read(const Json& json, int depth) {
  if (depth > kMaxDepth) {
    throw UsageError(
        fmt::format("a schedule with more than {} nested pieces is unsupported", kMaxDepth));
  }
  const auto kind = json.at("kind").get<std::string>();
  const auto number = [&](const char* name) { return json.at(name).get<double>(); };
  const auto steps = [&](const char* name) { return json.at(name).get<std::int64_t>(); };
  // Version 0.1 wrote "floor".
  const auto decay = [&] {
    return DecayOptions{.min_lr_ratio =
                            number(json.contains("min_lr_ratio") ? "min_lr_ratio" : "floor")};
  };
  const auto piece = [&](const char* name) { return read(json.at(name), depth + 1); };
  if (kind == "constant") return constant(number("value"));
  if (kind == "linear_warmup") return linear_warmup(steps("steps"), {.from = number("from")});
  if (kind == "cosine") return cosine(steps("steps"), decay());
  if (kind == "linear_decay") return linear_decay(steps("steps"), decay());
  if (kind == "step_decay") return step_decay(steps("every"), number("factor"));
  if (kind == "product") return piece("left") * piece("right");
  if (kind == "then") return piece("first").then(piece("next"));
  throw UsageError("unknown kind of schedule piece; a later version may have written it");
}

}  // namespace

double SchedulePiece::at(std::int64_t step) const {
  return std::visit([&](const auto& piece) { return value(piece, step); }, piece_);
}

std::optional<std::int64_t> SchedulePiece::length() const {
  return std::visit([](const auto& piece) { return length_of(piece); }, piece_);
}

std::string SchedulePiece::describe() const {
  return std::visit([](const auto& piece) { return words(piece); }, piece_);
}

nlohmann::json SchedulePiece::to_json() const {
  return std::visit([](const auto& piece) { return json_of(piece); }, piece_);
}

Schedule read_schedule(const nlohmann::json& json) { return read(json, 0); }

}  // namespace lockstep
