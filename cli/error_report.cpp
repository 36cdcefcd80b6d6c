#include "cli/error_report.h"

#include <ostream>

namespace lockstep::cli {

int report(std::string_view verb, const Error& error, std::ostream& out, int failure) {
  out << "lockstep " << verb << ": " << error.what() << '\n';
  return error.kind() == "usage" ? kUsage : failure;
}

}  // namespace lockstep::cli
