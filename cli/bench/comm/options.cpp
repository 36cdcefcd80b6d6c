#include "cli/bench/comm/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>

#include "cli/arguments.h"
#include "cli/duration.h"
#include "cli/nearest.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

// The options that are lists or times, as text before parsing.
struct Texts {
  std::string sizes;
  std::string ops;
  std::string dtypes;
  std::string memory = "both";
  std::string time;
  std::string compare;
};

constexpr std::array kPeers{Peer::gloo, Peer::mpi};
constexpr std::array kMemoryKinds{MemoryKind::registered, MemoryKind::ordinary};

void declare(Arguments& arguments, BenchCommOptions& options, Texts& texts) {
  arguments.option("-n,--ranks", options.num_ranks, {1, 1024});
  arguments.option("--sizes", texts.sizes);
  arguments.option("--ops", texts.ops);
  arguments.option("--dtypes", texts.dtypes);
  arguments.option("--memory", texts.memory);
  arguments.option("--seconds", texts.time);
  arguments.option("--iterations", options.iterations, {1, 1'000'000});
  arguments.option("--compare", texts.compare);
  arguments.option("--rounds", options.rounds, {1, 1000});
  arguments.option("--python", options.python);
  arguments.option("--json", options.json);
  arguments.option("--svg", options.svg);
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// The values of `all` that `text` names, in its order, each once; the word `whole` names all of
// them.
template <typename All>
auto parse_names(const std::string& option, const std::string& text, const All& all,
                 std::string_view whole) {
  using Value = std::remove_cvref_t<decltype(*std::begin(all))>;
  if (text == whole) return std::vector<Value>(std::begin(all), std::end(all));
  std::vector<Value> values;
  std::vector<std::string_view> names;
  for (const auto value : all) names.push_back(to_string(value));
  for (const auto& word : split_at_commas(text)) {
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) {
      const auto nearest = try_nearest(word, names);
      throw UsageError(fmt::format("{} names \"{}\"{}, expected one or more of {}{}", option, word,
                                   nearest ? fmt::format(" (did you mean {}?)", *nearest) : "",
                                   fmt::join(names, ", "),
                                   whole.empty() ? "" : fmt::format(", or {}", whole)));
    }
    const auto value = *std::next(std::begin(all), found - names.begin());
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return values;
}

std::size_t parse_size(const std::string& word) {
  std::size_t number = 0;
  const char* end = word.data() + word.size();
  const auto [stopped, error] = std::from_chars(word.data(), end, number);
  std::string unit(stopped, end);
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const std::string_view tail : {"IB", "B"}) {
    if (unit.ends_with(tail)) {
      unit.erase(unit.size() - tail.size());
      break;
    }
  }
  const auto shift = unit.empty() ? 0U : unit == "K" ? 10U : unit == "M" ? 20U : 30U;
  const bool known = unit.empty() || unit == "K" || unit == "M" || unit == "G";
  if (error != std::errc{} || !known || number == 0 || number > (std::size_t{1} << 40 >> shift)) {
    throw UsageError(fmt::format(
        "--sizes names \"{}\", expected bytes as 8, 1K, 25M or 1G, in powers of 1024", word));
  }
  return number << shift;
}

void parse(const Texts& texts, BenchCommOptions& options) {
  if (!texts.sizes.empty()) {
    options.sizes.clear();
    for (const auto& word : split_at_commas(texts.sizes)) {
      options.sizes.push_back(parse_size(word));
    }
  }
  if (!texts.ops.empty()) {
    options.ops = parse_names("--ops", texts.ops, timed_collectives(), "all");
  }
  if (!texts.dtypes.empty()) {
    std::array<DType, kNumDTypes> all{};
    for (int i = 0; i < kNumDTypes; ++i) all[static_cast<std::size_t>(i)] = static_cast<DType>(i);
    options.dtypes = parse_names("--dtypes", texts.dtypes, all, "all");
  }
  if (texts.memory == "library") {
    throw UsageError("--memory library is now --memory registered");
  }
  options.memory = parse_names("--memory", texts.memory, kMemoryKinds, "both");
  if (!texts.compare.empty()) {
    options.compare = parse_names("--compare", texts.compare, kPeers, "");
  }
  if (!texts.time.empty()) {
    if (options.iterations > 0) {
      throw UsageError("--seconds and --iterations are both given; give one");
    }
    options.time = parse_duration("--seconds", texts.time);
  }
}

}  // namespace

std::string_view to_string(Peer peer) noexcept { return peer == Peer::gloo ? "gloo" : "mpi"; }

BenchCommOptions parse_bench_comm_options(const std::vector<std::string>& arguments) {
  BenchCommOptions options;
  Texts texts;
  Arguments declared("bench comm", options.help);
  declare(declared, options, texts);
  declared.read(arguments);
  if (options.help) return options;
  parse(texts, options);
  return options;
}

std::string bench_comm_help() {
  return "lockstep bench comm [options]: times collectives among ranks\n"
         "\n"
         "Starts pinned ranks on this machine; under a launcher, measures among the job's ranks.\n"
         "\n"
         "  -n N                     ranks; may exceed the cores (default: one per core)\n"
         "  --sizes 1K,64K,1M,25M    bytes of the whole array; K, M, G are powers of 1024\n"
         "  --ops all_reduce,…|all   also reduce_scatter all_gather broadcast reduce gather\n"
         "                           scatter all_to_all reduce_to_owners gather_from_owners\n"
         "  --dtypes float32,…|all   also float64 float16 bfloat16 int8 int32 int64 uint8 bool\n"
         "  --memory registered|ordinary|both\n"
         "                           registered: allocated by the group, used in place;\n"
         "                           ordinary: any other, copied (default: both)\n"
         "  --seconds 300ms          time per row, backend and round; or --iterations N calls\n"
         "  --compare gloo,mpi       also time PyTorch's Gloo and Open MPI; backends take turns\n"
         "  --rounds N               number of turns (default 3; 1 without --compare)\n"
         "  --python PATH            a Python with torch (default LOCKSTEP_PYTHON, then python3)\n"
         "  --json FILE  --svg FILE  all figures as JSON; a chart of time over size\n"
         "\n"
         "Examples\n"
         "  lockstep bench comm\n"
         "  lockstep bench comm -n 2 --sizes 1K,64K,1M,16M,128M --compare gloo,mpi --svg comm.svg\n"
         "  lockstep bench comm --ops all --dtypes float32,bfloat16 --json comm.json\n"
         "  lockstep run --nnodes 2 --node-rank 0 --rendezvous node0:29400 lockstep bench comm\n";
}

}  // namespace lockstep::cli
