// `lockstep data <verb>`: what a data file is, tokens, audit, fetching.
#include <array>

#include "cli/data/verbs.h"
#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep data: look at data, make tokens, prove who reads what, fetch data sets\n"
    "\n"
    "  data inspect FILE…                  what each file is, its samples, its data id\n"
    "  data tokenize FILE… -o OUT.bin      text or JSON lines to a token file\n"
    "  data audit --samples N --world 4    prove that W ranks read every sample once an epoch\n"
    "  data fetch NAME                     shakespeare, sotu, fashion-mnist or gpt2-bpe\n"
    "\n"
    "Each explains itself: `lockstep data inspect --help`.\n"
    "\n"
    "Examples:\n"
    "  lockstep data fetch gpt2-bpe && lockstep data fetch shakespeare\n"
    "  lockstep data tokenize ~/.cache/lockstep/data/shakespeare/shakespeare.txt -o train.bin\n"
    "  lockstep data inspect train.bin\n"
    "  lockstep data audit --samples 60000 --global-batch 256 --world 1,2,4,8 --epochs 3\n";

int run_data_audit(const std::vector<std::string>& arguments, Streams /*streams*/) {
  auto words = arguments;
  words.insert(words.begin(), "audit");
  become_sibling("lockstep-data", words);
}

constexpr std::array kVerbs{
    Verb{"inspect", "what a file is", run_data_inspect},
    Verb{"tokenize", "text to tokens", run_data_tokenize},
    Verb{"audit", "who reads what", run_data_audit},
    Verb{"fetch", "bring a data set", run_data_fetch},
};

}  // namespace

int run_data(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("data", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
