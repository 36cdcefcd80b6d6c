#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <typeinfo>

#include "lockstep/testing/run_body_internal.h"

namespace lockstep::testing {
namespace {

std::string type_of_current_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an unknown type";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? plain.get() : type->name();
}

const char* word_for(RankState state) {
  switch (state) {
    case RankState::starting:
      return "starting";
    case RankState::running:
      return "running";
    case RankState::finished:
      return "finished";
    case RankState::failed:
      return "failed";
  }
  return "in an unknown state";
}

}  // namespace

std::optional<std::string> failure_of_body(Board& board, int rank,
                                           const std::function<void(Rank&)>& body) {
  board.enter(rank);
  try {
    Rank self(board, rank);
    body(self);
    return std::nullopt;
  } catch (const std::exception& error) {
    return fmt::format("{}: {}", type_of_current_exception(), error.what());
  } catch (...) {
    return fmt::format("it threw a value of type {}, which has no message",
                       type_of_current_exception());
  }
}

std::string describe_rank(const Board& board, int rank) {
  const char* word = word_for(board.state(rank));
  const auto note = board.last_note(rank);
  if (!note) return fmt::format("{}; left no note", word);
  const std::chrono::duration<double> age = Deadline::Clock::now() - note->at;
  return fmt::format("{}; noted \"{}\" {:.3f} s ago", word, note->text, age.count());
}

std::string indented(std::string_view text, std::string_view prefix) {
  std::string result;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    result += fmt::format("{}{}\n", prefix, line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return result;
}

}  // namespace lockstep::testing
