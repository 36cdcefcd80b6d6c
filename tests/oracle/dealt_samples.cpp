// Reads lines "size world seed epoch drop_last shuffle batch" and prints, for each, one line with
// the samples of rank 0, then 1, … of lockstep's sampler, with the options that reproduce Python's
// DistributedSampler and DataLoader. Batches are separated by "/", ranks by "|".
#include <cstdint>
#include <iostream>
#include <string>

#include "lockstep/data/sampler.h"

int main() {
  using namespace lockstep;
  std::int64_t size = 0;
  int world = 0;
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  int drop_last = 0;
  int shuffle = 0;
  std::int64_t batch = 0;
  while (std::cin >> size >> world >> seed >> epoch >> drop_last >> shuffle >> batch) {
    std::string line;
    for (int rank = 0; rank < world; ++rank) {
      Sampler sampler(Order(size, {.kind = shuffle == 1 ? OrderKind::torch : OrderKind::sequential,
                                   .seed = seed}),
                      /*data_id=*/0,
                      {.global_batch = batch * world,
                       .rank = rank,
                       .world = world,
                       .shard = SampleShard::stride,
                       .tail = drop_last == 1 ? Tail::drop : Tail::pad,
                       .tail_unit = TailUnit::world});
      sampler.set_epoch(epoch);
      for (bool ended = false; !ended;) {
        const auto step = sampler.next();
        ended = step.ends_epoch;
        for (const auto sample : step.samples) line += std::to_string(sample) + ' ';
        if (!ended) line += "/ ";
      }
      line += "| ";
    }
    std::cout << line << '\n';
  }
  return 0;
}
