// Reads and writes the values of settings, per type: read() parses text, spell() writes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/train/config.h"

namespace lockstep::cli {

void read(std::string_view option, const std::string& text, std::int64_t& value);
void read(std::string_view option, const std::string& text, double& value);
void read(std::string_view option, const std::string& text, bool& value);
void read(std::string_view option, const std::string& text, std::string& value);
void read(std::string_view option, const std::string& text, TrainLength& value);
void read(std::string_view option, const std::string& text, std::vector<std::int64_t>& value);

[[nodiscard]] std::string spell(std::int64_t value);
[[nodiscard]] std::string spell(double value);
[[nodiscard]] std::string spell(bool value);
[[nodiscard]] std::string spell(const std::string& value);
[[nodiscard]] std::string spell(const TrainLength& value);
[[nodiscard]] std::string spell(const std::vector<std::int64_t>& value);

/// Reads a number of bytes: 1048576, 64KiB, 25MiB, 25MB; auto is 0.
[[nodiscard]] std::int64_t read_bytes(std::string_view option, const std::string& text);
[[nodiscard]] std::string spell_bytes(std::int64_t bytes);

/// The words for the values of an enumeration, in its order.
std::vector<std::string_view> words_of(OptimizerKind);
std::vector<std::string_view> words_of(ScheduleKind);
std::vector<std::string_view> words_of(LrScaling);
std::vector<std::string_view> words_of(TrainDevice);
std::vector<std::string_view> words_of(Precision);
std::vector<std::string_view> words_of(HeadKind);
std::vector<std::string_view> words_of(KernelKind);
std::vector<std::string_view> words_of(Augment);
std::vector<std::string_view> words_of(ResumeKind);
std::vector<std::string_view> words_of(TailKind);
std::vector<std::string_view> words_of(Compress);
std::vector<std::string_view> words_of(Sharding);
std::vector<std::string_view> words_of(CopiesKind);

}  // namespace lockstep::cli
