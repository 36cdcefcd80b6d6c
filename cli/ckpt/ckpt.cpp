// `lockstep ckpt <verb>`: inspect, verify and compare checkpoints; export and import weights.
#include <array>

#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep ckpt: inspect, verify, compare, export and import checkpoints\n"
    "\n"
    "  ckpt inspect PATH          list the checkpoints of a run, or what one contains\n"
    "  ckpt verify PATH           read every byte and compare it with the manifest\n"
    "  ckpt diff A B              list the tensors and states that differ\n"
    "  ckpt export PATH -o FILE   write one part as a plain .safetensors file\n"
    "  ckpt import FILE --to RUN  start a run from a .safetensors file\n"
    "\n"
    "PATH is the folder of a run (runs/mine), of one checkpoint\n"
    "(runs/mine/checkpoints/step-200), or a run with the name of a kept checkpoint\n"
    "(runs/mine/best). `lockstep ckpt inspect --help` prints the options of a verb;\n"
    "docs/checkpoint_format.md describes the format.\n"
    "\n"
    "Examples\n"
    "  lockstep ckpt inspect runs/mine\n"
    "  lockstep ckpt export runs/mine -o model.safetensors\n"
    "  lockstep ckpt import pretrained.safetensors --to runs/finetune\n";

[[noreturn]] int become(const char* verb, const std::vector<std::string>& arguments) {
  auto words = arguments;
  words.insert(words.begin(), verb);
  become_sibling("lockstep-ckpt", words);
}

using Words = std::vector<std::string>;

constexpr std::array kVerbs{
    Verb{"inspect", "list checkpoints",
         [](const Words& words, Streams) { return become("inspect", words); }},
    Verb{"verify", "check every byte",
         [](const Words& words, Streams) { return become("verify", words); }},
    Verb{"diff", "compare two", [](const Words& words, Streams) { return become("diff", words); }},
    Verb{"export", "write a part",
         [](const Words& words, Streams) { return become("export", words); }},
    Verb{"import", "read a part",
         [](const Words& words, Streams) { return become("import", words); }},
};

}  // namespace

int run_ckpt(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("ckpt", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
