// `lockstep generate --prompt TEXT`
#include "cli/generate/request.h"
#include "cli/sibling.h"
#include "cli/verb.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {

int run_generate(const std::vector<std::string>& arguments, Streams streams) {
  try {
    const auto request = read_generate_request(arguments);
    if (request.help) {
      streams.out << generate_help();
      return kSuccess;
    }
    (void)config_of(request);  // throws for an invalid run before LibTorch is loaded
    become_sibling("lockstep-generate", arguments);
  } catch (const Error& error) {
    return report("generate", error, streams.error);
  }
}

}  // namespace lockstep::cli
