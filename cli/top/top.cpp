// `lockstep top [RUN]`
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "cli/arguments.h"
#include "cli/duration.h"
#include "cli/top/find_run.h"
#include "cli/top/view.h"
#include "cli/verb.h"
#include "lockstep/base/deadline.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/console_style.h"
#include "lockstep/launch/signal_relay.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep top [RUN]: show what each rank of a run does now\n"
    "\n"
    "  RUN            folder of a run of `lockstep run` or `lockstep train` (default: the\n"
    "                 newest one in runs/)\n"
    "  --once         print the state once (default if the output is not a terminal)\n"
    "  --json         print it once, as one JSON object\n"
    "  --interval T   time between two updates of the view (default 1s)\n"
    "  --color WHEN   auto, always or never (default auto)\n"
    "\n"
    "In the view, q or Ctrl-C ends it; the run continues. After the end of a run, its last\n"
    "state is shown.\n"
    "\n"
    "Examples\n"
    "  lockstep top runs/gpt\n"
    "  lockstep top --once\n";

struct TopOptions {
  std::string run = {};
  bool once = false;
  bool json = false;
  std::chrono::milliseconds interval{1'000};
  std::size_t color = 0;
  bool help = false;
};

TopOptions read_options(const std::vector<std::string>& arguments) {
  TopOptions options;
  std::string interval = "1s";
  std::string color = "auto";
  Arguments declared("top", options.help);
  declared.option("run", options.run);
  declared.flag("--once", options.once);
  declared.flag("--json", options.json);
  declared.option("--interval", interval);
  declared.option("--color", color);
  declared.read(arguments);
  options.interval = parse_duration("--interval", interval);
  if (options.interval < std::chrono::milliseconds(10)) {
    throw UsageError(fmt::format("--interval is \"{}\", expected at least 10ms", interval));
  }
  options.color = read_choice("--color", color, {"auto", "always", "never"});
  return options;
}

RunState read_run(const std::string& folder) {
  try {
    return RunPages::read(folder + "/" + RunPages::kFileName);
  } catch (const SystemError& error) {
    if (error.error_number() != ENOENT) throw;
    throw UsageError(fmt::format(
        "the launcher of {} has ended without leaving a last state: it was killed, and its ranks "
        "with it; the logs are in {}/logs",
        folder, folder));
  }
}

// The terminal in the mode of a view: alternate screen, no echo, single keys.
class ViewTerminal {
 public:
  ViewTerminal() : has_keys_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (has_keys_) {
      auto keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    write("\x1b[?1049h\x1b[?25l");
  }
  ~ViewTerminal() {
    write("\x1b[?25h\x1b[?1049l");
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  ViewTerminal(const ViewTerminal&) = delete;
  ViewTerminal& operator=(const ViewTerminal&) = delete;

  // One write per frame, each line cleared to its end: no flicker.
  static void show(std::string_view text) {
    std::string frame = "\x1b[H";
    for (const char letter : text) {
      if (letter == '\n') frame += "\x1b[K\r";
      frame += letter;
    }
    write(frame + "\x1b[J");
  }
  [[nodiscard]] bool has_keys() const noexcept { return has_keys_; }

 private:
  static void write(std::string_view text) {
    [[maybe_unused]] const auto count = ::write(STDOUT_FILENO, text.data(), text.size());
  }

  termios before_{};
  bool has_keys_;
};

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    size.ws_col = 100;
    size.ws_row = 40;
  }
  return size;
}

// Returns true when the user wants to leave.
bool wait_for_key(const SignalRelay& relay, bool has_keys, Deadline deadline) {
  while (!deadline.expired()) {
    pollfd events[2] = {{relay.descriptor(), POLLIN, 0}, {has_keys ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(events, 2, deadline.poll_milliseconds()) <= 0) continue;
    if (events[0].revents != 0) return true;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 3) return true;
  }
  return false;
}

// Updates until the run ends or the user leaves. Returns the last state.
RunState watch(const std::string& folder, TopStyle style, const TopOptions& options) {
  const SignalRelay relay;
  const ViewTerminal terminal;
  StepRates rates;
  for (;;) {
    auto run = read_run(folder);
    rates.add(run, std::chrono::steady_clock::now());
    style.rates = rates.rates();
    const auto size = terminal_size();
    style.columns = size.ws_col;
    style.rows = size.ws_row;
    ViewTerminal::show(top_text(run, style, std::chrono::system_clock::now()));
    if (run.has_ended ||
        wait_for_key(relay, terminal.has_keys(), Deadline::after(options.interval))) {
      return run;
    }
  }
}

void show(const TopOptions& options, Streams streams) {
  const auto folder = find_pages_folder(options.run);
  if (options.json) {
    streams.out << top_json(read_run(folder), folder);
    return;
  }
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  constexpr ColorChoice kChoices[] = {ColorChoice::automatic, ColorChoice::always,
                                      ColorChoice::never};
  TopStyle style{
      .folder = folder,
      .color = wants_color(kChoices[options.color], Environment::of_process(), is_terminal)};
  const bool live = is_terminal && !options.once;
  const auto run = live ? watch(folder, style, options) : read_run(folder);
  style.columns = is_terminal ? terminal_size().ws_col : 1 << 10;
  streams.out << top_text(run, style, std::chrono::system_clock::now());
}

}  // namespace

int run_top(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto options = read_options(arguments);
    if (options.help) {
      streams.out << kHelp;
      return kSuccess;
    }
    show(options, streams);
    return kSuccess;
  } catch (const Error& error) {
    return report("top", error, streams.error);
  }
}

}  // namespace lockstep::cli
