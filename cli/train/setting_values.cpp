#include "cli/train/setting_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

template <typename Number>
void read_number(std::string_view option, std::string_view text, std::string_view what,
                 Number& value) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stopped != end) {
    throw UsageError(fmt::format("{} is \"{}\", expected {}", option, text, what));
  }
  value = number;
}

struct ByteUnit {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array kByteUnits{ByteUnit{"GiB", 1 << 30},
                                ByteUnit{"MiB", 1 << 20},
                                ByteUnit{"KiB", 1 << 10},
                                ByteUnit{"GB", 1'000'000'000},
                                ByteUnit{"MB", 1'000'000},
                                ByteUnit{"KB", 1'000},
                                ByteUnit{"", 1}};

}  // namespace

void read(std::string_view option, const std::string& text, std::int64_t& value) {
  read_number(option, text, "an integer", value);
}

void read(std::string_view option, const std::string& text, double& value) {
  double number = 0;
  read_number(option, text, "a number", number);
  if (!std::isfinite(number)) {
    throw UsageError(fmt::format("{} is \"{}\", expected a number", option, text));
  }
  value = number;
}

void read(std::string_view option, const std::string& text, bool& value) {
  if (text == "true" || text == "yes" || text == "on" || text == "1") {
    value = true;
  } else if (text == "false" || text == "no" || text == "off" || text == "0") {
    value = false;
  } else {
    throw UsageError(fmt::format("{} is \"{}\", expected true or false", option, text));
  }
}

void read(std::string_view /*option*/, const std::string& text, std::string& value) {
  value = text;
}

void read(std::string_view option, const std::string& text, TrainLength& value) {
  value = parse_train_length(option, text);
}

void read(std::string_view option, const std::string& text, std::vector<std::int64_t>& value) {
  std::vector<std::int64_t> numbers;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    numbers.emplace_back();
    read_number(option, std::string_view(text).substr(begin, end - begin),
                "integers with commas, such as 256,128", numbers.back());
    begin = end + 1;
  }
  value = std::move(numbers);
}

std::string spell(std::int64_t value) { return std::to_string(value); }
std::string spell(double value) { return fmt::format("{}", value); }
std::string spell(bool value) { return value ? "true" : "false"; }
std::string spell(const std::string& value) { return value; }
std::string spell(const TrainLength& value) { return to_string(value); }
std::string spell(const std::vector<std::int64_t>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}

std::int64_t read_bytes(std::string_view option, const std::string& text) {
  if (text == "auto") return 0;
  for (const auto& unit : kByteUnits) {
    if (!text.ends_with(unit.name)) continue;
    std::int64_t number = 0;
    const auto digits = std::string_view(text).substr(0, text.size() - unit.name.size());
    read_number(option, digits, "a number of bytes such as 64KiB or 25MiB, or auto", number);
    if (number < 1 || number > (std::int64_t{1} << 40) / unit.bytes) break;
    return number * unit.bytes;
  }
  throw UsageError(fmt::format("{} is \"{}\", expected 1 to 1024 GiB, or auto", option, text));
}

std::string spell_bytes(std::int64_t bytes) {
  if (bytes == 0) return "auto";
  for (const auto& unit : kByteUnits) {
    if (bytes % unit.bytes == 0) return fmt::format("{}{}", bytes / unit.bytes, unit.name);
  }
  return std::to_string(bytes);
}

std::vector<std::string_view> words_of(OptimizerKind) { return {"adamw", "adam", "sgd"}; }
std::vector<std::string_view> words_of(ScheduleKind) {
  return {"auto", "cosine", "linear", "step", "constant"};
}
std::vector<std::string_view> words_of(LrScaling) { return {"none", "linear", "square-root"}; }
std::vector<std::string_view> words_of(TrainDevice) { return {"auto", "cpu", "cuda"}; }
std::vector<std::string_view> words_of(Precision) { return {"fp32", "bf16", "fp16"}; }
std::vector<std::string_view> words_of(HeadKind) { return {"tied", "separate"}; }
std::vector<std::string_view> words_of(KernelKind) { return {"own", "libtorch"}; }
std::vector<std::string_view> words_of(Augment) { return {"none", "flip"}; }
std::vector<std::string_view> words_of(ResumeKind) { return {"auto", "required"}; }
std::vector<std::string_view> words_of(TailKind) { return {"drop", "pad", "uneven"}; }
std::vector<std::string_view> words_of(Compress) {
  return {"none", "bf16", "fp16", "int8", "powersgd", "auto"};
}
std::vector<std::string_view> words_of(Sharding) {
  return {"none", "optimizer", "gradients", "auto"};
}
std::vector<std::string_view> words_of(CopiesKind) { return {"auto", "per-rank", "per-host"}; }

}  // namespace lockstep::cli
