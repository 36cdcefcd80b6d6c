// `lockstep ckpt <verb>`: look at checkpoints, prove them whole, compare, carry to Python and back.
#include <array>

#include "cli/sibling.h"
#include "cli/sub_verb.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kHelp =
    "lockstep ckpt: look at checkpoints, prove them whole, compare them, carry them to Python\n"
    "\n"
    "  ckpt inspect PATH              what a run's checkpoints are, or what one of them holds\n"
    "  ckpt verify PATH               read every byte and hold it against the manifest\n"
    "  ckpt diff A B                  which tensors and states differ, and by how much\n"
    "  ckpt export PATH -o FILE       one part as a plain .safetensors file\n"
    "  ckpt import FILE --to RUN      a .safetensors file as the first checkpoint of a new run\n"
    "\n"
    "PATH is the folder of a run (runs/mine) or of one checkpoint "
    "(runs/mine/checkpoints/step-200),\n"
    "or a run with a name that one of its checkpoints is kept as (runs/mine/best).\n"
    "Each explains itself: `lockstep ckpt inspect --help`. docs/checkpoint_format.md has the "
    "format.\n"
    "\n"
    "Examples:\n"
    "  lockstep ckpt inspect runs/mine\n"
    "  lockstep ckpt verify runs/mine && lockstep ckpt export runs/mine -o model.safetensors\n"
    "  lockstep ckpt import pretrained.safetensors --to runs/finetune\n";

[[noreturn]] int become(const char* verb, const std::vector<std::string>& arguments) {
  auto words = arguments;
  words.insert(words.begin(), verb);
  become_sibling("lockstep-ckpt", words);
}

using Words = std::vector<std::string>;

constexpr std::array kVerbs{
    Verb{"inspect", "what is there",
         [](const Words& words, Streams) { return become("inspect", words); }},
    Verb{"verify", "is it whole",
         [](const Words& words, Streams) { return become("verify", words); }},
    Verb{"diff", "what differs", [](const Words& words, Streams) { return become("diff", words); }},
    Verb{"export", "to Python",
         [](const Words& words, Streams) { return become("export", words); }},
    Verb{"import", "from Python",
         [](const Words& words, Streams) { return become("import", words); }},
};

}  // namespace

int run_ckpt(const std::vector<std::string>& arguments, Streams streams) {
  return dispatch_sub_verb("ckpt", kVerbs, kHelp, arguments, streams);
}

}  // namespace lockstep::cli
