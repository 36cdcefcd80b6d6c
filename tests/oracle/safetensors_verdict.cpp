// Prints lockstep's result for each safetensors file, for safetensors_agreement.py to compare:
// `file <path>`, then `accept` and one line per tensor, or `reject: <message>`. A tensor's line is:
// dtype, begin, end, its sizes separated by commas (- for a scalar), its name in hex.
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/formats/safetensors_header.h"

namespace {

std::string sizes_of(const lockstep::SafetensorsEntry& entry) {
  std::string text;
  for (const auto size : entry.shape) text += (text.empty() ? "" : ",") + std::to_string(size);
  return text.empty() ? "-" : text;
}

std::string hex_of(const std::string& name) {
  const std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    text += {digits[byte >> 4], digits[byte & 15]};
  }
  return text;
}

void print_verdict(const std::string& bytes) {
  try {
    const auto header = lockstep::parse_safetensors_file(std::as_bytes(std::span(bytes)));
    std::printf("accept\n");
    for (const auto& entry : header.entries) {
      std::printf("%s %llu %llu %s %s\n",
                  std::string(lockstep::safetensors_dtype_name(entry.dtype)).c_str(),
                  static_cast<unsigned long long>(entry.begin),
                  static_cast<unsigned long long>(entry.end), sizes_of(entry).c_str(),
                  hex_of(entry.name).c_str());
    }
  } catch (const lockstep::UsageError& error) {
    std::printf("reject: %s\n", error.what());
  }
}

}  // namespace

int main(int num_arguments, char** arguments) {
  for (int i = 1; i < num_arguments; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s cannot be opened: name files that exist.\n", arguments[i]);
      return 1;
    }
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    std::printf("file %s\n", arguments[i]);
    print_verdict(bytes);
  }
  return 0;
}
