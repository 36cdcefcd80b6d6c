// `lockstep data <verb>`: inspect, tokenize, audit and fetch data.
#include <array>

#include "cli/data/verbs.h"
#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep data: inspect, tokenize, audit and fetch data\n"
    "\n"
    "  data inspect FILE…              print format, samples and data id of files\n"
    "  data tokenize FILE… -o OUT.bin  convert text or JSON lines to a token file\n"
    "  data audit --samples N          check that ranks read each sample once\n"
    "  data fetch NAME                 download shakespeare, sotu, fashion-mnist or\n"
    "                                  gpt2-bpe\n"
    "\n"
    "`lockstep data inspect --help` prints the options of a verb.\n"
    "\n"
    "Examples\n"
    "  lockstep data fetch shakespeare gpt2-bpe\n"
    "  lockstep data tokenize my.txt -o train.bin\n"
    "  lockstep data inspect train.bin\n"
    "  lockstep data audit --samples 60000 --world 1,2,4,8 --epochs 3\n";

int run_data_audit(const std::vector<std::string>& arguments, Streams /*streams*/) {
  auto words = arguments;
  words.insert(words.begin(), "audit");
  become_sibling("lockstep-data", words);
}

constexpr std::array kVerbs{
    Verb{"inspect", "format of files", run_data_inspect},
    Verb{"tokenize", "text to tokens", run_data_tokenize},
    Verb{"audit", "check samplers", run_data_audit},
    Verb{"fetch", "download data", run_data_fetch},
};

}  // namespace

int run_data(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("data", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
