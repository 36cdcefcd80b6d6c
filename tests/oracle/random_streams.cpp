// Prints the first numbers of a random stream, for random_agreement.py to compare with numpy:
//   random_streams seed purpose first second count
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "lockstep/base/random.h"

int main(int num_arguments, char** arguments) {
  if (num_arguments != 6) {
    std::fprintf(stderr, "usage: random_streams seed purpose first second count\n");
    return 2;
  }
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  lockstep::RandomStream stream({.seed = number(1), .purpose = number(2)}, number(3), number(4));
  for (auto count = number(5); count > 0; --count) std::printf("%" PRIu64 "\n", stream());
  return 0;
}
