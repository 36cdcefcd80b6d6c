// The pieces of a schedule as plain values; schedule_pieces.cpp has the formula of each.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>

namespace lockstep {

class Schedule;
class SchedulePiece;

struct Constant {
  double value;
};
struct LinearWarmup {
  std::int64_t steps;
  double from;
};
struct Cosine {
  std::int64_t steps;
  double min_lr_ratio;
};
struct LinearDecay {
  std::int64_t steps;
  double min_lr_ratio;
};
struct StepDecay {
  std::int64_t every;
  double factor;
};
struct Product {
  std::shared_ptr<const SchedulePiece> left;
  std::shared_ptr<const SchedulePiece> right;
};
struct Sequence {
  std::shared_ptr<const SchedulePiece> first;
  std::shared_ptr<const SchedulePiece> next;
  std::int64_t begin;  // first step of next: the length of first
};

using Piece =
    std::variant<Constant, LinearWarmup, Cosine, LinearDecay, StepDecay, Product, Sequence>;

class SchedulePiece {
 public:
  explicit SchedulePiece(Piece piece) : piece_(std::move(piece)) {}

  [[nodiscard]] double at(std::int64_t step) const;
  [[nodiscard]] std::optional<std::int64_t> length() const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] nlohmann::json to_json() const;

 private:
  Piece piece_;
};

/// Throws UsageError, or an exception of the JSON library, for anything that to_json() does not
/// write.
[[nodiscard]] Schedule read_schedule(const nlohmann::json& json);

}  // namespace lockstep
