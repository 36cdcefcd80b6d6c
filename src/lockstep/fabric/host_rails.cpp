// An all_reduce by rails (host_call_internal.h).
#include <algorithm>

#include "lockstep/fabric/host_call_internal.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

// The scratch of the call holds the partial of this rank's part. A rank that is alone on its host
// sends its input as it is.
void HostCall::expect_by_rails() {
  const auto& part = parts_[own_part_].range;
  const bool is_ring = algorithm_ == ExchangeAlgorithm::ring;
  const auto size = memory_->size();
  const auto partial = is_ring ? made().dtype : partial_dtype(made().dtype);
  ExchangeData data{.own = memory_->host()};
  for (int host = 0; host < plan().num_hosts(); ++host) {
    data.members.push_back(plan().ranks_of(host)[memory_->own_index()]);
  }
  data.count = part.length / bytes_of(made().dtype);
  data.input_dtype = size == 1 ? made().dtype : partial;
  if (size > 1) call_.scratch = call_.group->borrow(data.count * bytes_of(partial));
  data.input = size == 1 ? made().input.data() + part.begin : call_.scratch.data();
  data.result = made().output.data() + part.begin;
  data.num_contributions = plan().num_ranks();
  data.ends_call = size == 1;  // otherwise the ranks of the host await the results
  if (size > 1 && !is_ring) {
    data.prepare = [this](const Part& elements) {
      const auto width = bytes_of(made().dtype);
      if (!is_staged_) reduce_for_rail({elements.begin * width, elements.length * width});
    };
  }
  call_.steps = make_exchange(algorithm_, call_, std::move(data));
}

void HostCall::reduce_for_rail(const Part& block) {
  if (block.length == 0) return;
  const auto& ranks = memory_->ranks();
  const auto count = block.length / bytes_of(made().dtype);
  const auto before = block.begin / bytes_of(made().dtype);
  const LeafInterval all{ranks.front(), ranks.back() + 1};
  if (algorithm_ != ExchangeAlgorithm::ring) {
    auto* const to = call_.scratch.data() + before * bytes_of(partial_dtype(made().dtype));
    return reduce_here({memory_->host(), all}, own_part_, block, to);
  }
  std::vector<const std::byte*> sources;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    sources.push_back(input_at(i, own_part_, block.begin));
  }
  auto* const to = call_.scratch.data() + block.begin;
  reduce({made().dtype, ReduceOp::sum}, TreePlan::over_ranks(static_cast<int>(ranks.size())),
         sources, std::span(&to, 1), count);
}

Recipe HostCall::move_by_rails() {
  const auto& ranks = memory_->ranks();
  const auto rounds = num_rounds();
  const bool is_alone = ranks.size() == 1;
  // From registered memory, the exchange has each block reduced when it needs it.
  const bool reduces_first = !is_alone && (is_staged_ || algorithm_ == ExchangeAlgorithm::ring);
  for (std::size_t round = 0; reduces_first && round < rounds; ++round) {
    if (is_staged_) {
      stage_inputs(round);
      end_phase();  // by all: they have staged their inputs
      for (const int other : ranks) {
        if (other != rank()) co_await phase_ended_by(other, memory_->phases);
      }
    }
    reduce_for_rail(block_of(parts_[own_part_], round));
    if (!is_staged_) continue;
    end_phase();  // by all: they have read the stages
    for (const int other : ranks) {
      if (other != rank()) co_await phase_ended_by(other, memory_->phases);
    }
  }
  while (const auto awaited = call_.steps->advance()) co_await *awaited;
  for (std::size_t round = 0; !is_alone && round < rounds; ++round) {
    if (is_staged_) stage_results(round);
    if (is_staged_ || round == 0) {
      end_phase();  // by all: they have their results
      for (const int other : ranks) {
        if (other != rank()) co_await phase_ended_by(other, memory_->phases);
      }
    }
    copy_results(round);
    if (!is_staged_ || round + 1 == rounds) continue;  // the next staged call begins with a phase
    end_phase();                                       // by all: they have copied the results
    for (const int other : ranks) {
      if (other != rank()) co_await phase_ended_by(other, memory_->phases);
    }
  }
  if (is_alone || is_staged_) co_return;
  // Until all ranks of the host have read its memory, this rank must not reuse it.
  end_phase();
  const auto phases = memory_->phases;  // later calls end more
  for (const int other : ranks) {
    if (other != rank()) co_await phase_ended_by(other, phases, /*last=*/true);
  }
}

}  // namespace lockstep
