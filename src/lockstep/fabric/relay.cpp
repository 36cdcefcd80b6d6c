#include "lockstep/fabric/relay.h"

#include <bit>
#include <set>

namespace lockstep {

std::vector<int> partners_of(int rank, int size) {
  std::set<int> partners;
  for (int distance = 1; distance < size; distance *= 2) {
    partners.insert((rank + distance) % size);
    partners.insert((rank - distance + size) % size);
  }
  return {partners.begin(), partners.end()};
}

// The rank at distance d from the origin receives the message from that at distance d without its
// highest bit.
std::vector<int> next_relays(int origin, int rank, int size) {
  const int own = (rank - origin + size) % size;
  std::vector<int> next;
  for (int distance = own == 0 ? 1
                               : 2 * static_cast<int>(std::bit_floor(static_cast<unsigned>(own)));
       own + distance < size; distance *= 2) {
    next.push_back((rank + distance) % size);
  }
  return next;
}

}  // namespace lockstep
