#include "lockstep/trace/jsonl_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

constexpr std::size_t kBufferBytes = 64u << 10;  // per write call

long long nanoseconds(TraceClock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

std::string in_quotes(std::string_view name) {
  using nlohmann::json;
  return json(std::string(name)).dump(-1, ' ', false, json::error_handler_t::replace);
}

// JSON has no infinities and no NaN.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string first_line() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format(
      "{{\"format\":\"lockstep-trace\",\"version\":1,\"pid\":{},\"steady_ns\":{},\"wall_ns\":{}}}"
      "\n",
      ::getpid(), nanoseconds(TraceClock::now()),
      std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count());
}

}  // namespace

JsonlWriter::JsonlWriter(std::string path)
    : path_(std::move(path)),
      file_(FileDescriptor::open(path_, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND)) {
  buffer_.reserve(2 * kBufferBytes);
  append(first_line());
  flush();
}

JsonlWriter::~JsonlWriter() {
  const std::lock_guard lock(mutex_);
  write_buffer();
}

void JsonlWriter::record(const TraceSpan& span) noexcept {
  const auto begin = nanoseconds(span.begin);
  append(fmt::format("{{\"span\":{},\"thread\":{},\"begin_ns\":{},\"duration_ns\":{}}}\n",
                     in_quotes(span.name), ::gettid(), begin, nanoseconds(span.end) - begin));
}

void JsonlWriter::record(const TraceCounter& counter) noexcept {
  append(fmt::format("{{\"counter\":{},\"thread\":{},\"at_ns\":{},\"value\":{}}}\n",
                     in_quotes(counter.name), ::gettid(), nanoseconds(counter.at),
                     number(counter.value)));
}

void JsonlWriter::flush() {
  const std::lock_guard lock(mutex_);
  write_buffer();
  if (failure_) throw SystemError(*failure_);
}

void JsonlWriter::append(const std::string& line) noexcept {
  const std::lock_guard lock(mutex_);
  buffer_ += line;
  if (buffer_.size() >= kBufferBytes) write_buffer();
}

void JsonlWriter::write_buffer() noexcept {
  if (!failure_) {
    try {
      write_all(file_.number(), std::as_bytes(std::span(buffer_)), path_);
    } catch (const SystemError& error) {
      failure_ = error;
    }
  }
  buffer_.clear();
}

}  // namespace lockstep
