// An all_reduce by rails (host_call_internal.h).
#include <algorithm>

#include "lockstep/fabric/host_call_internal.h"
#include "lockstep/kernels/reduce.h"

namespace lockstep {

// The scratch of the call holds a block that is combined at once, then the partial of this rank's
// part. A rank that is alone on its host sends its input as it is.
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
  if (size > 1)
    call_.scratch = call_.group->borrow(kPreparedBytes + data.count * bytes_of(partial));
  data.input = size == 1 ? made().input.data() + part.begin : rail_partial(0);
  data.result = made().output.data() + part.begin;
  data.num_contributions = plan().num_ranks();
  data.ends_call = size == 1;  // otherwise the ranks of the host await the results
  if (size > 1 && !is_ring) {
    data.prepare = [this](const Part& elements, ExchangeData::Use use) {
      return prepare_for_rail(elements, use);
    };
  }
  call_.reduction = make_exchange(algorithm_, call_, std::move(data));
}

std::byte* HostCall::rail_partial(std::size_t element) {
  const bool is_ring = algorithm_ == ExchangeAlgorithm::ring;
  const auto width = bytes_of(is_ring ? made().dtype : partial_dtype(made().dtype));
  return call_.scratch.data() + kPreparedBytes + element * width;
}

const std::byte* HostCall::prepare_for_rail(const Part& elements, ExchangeData::Use use) {
  auto* const partial = rail_partial(elements.begin);
  if (is_staged_) return partial;  // has been reduced, while the inputs were staged
  auto* const to = use == ExchangeData::Use::once ? call_.scratch.data() : partial;
  const auto width = bytes_of(made().dtype);
  reduce_for_rail({elements.begin * width, elements.length * width}, to);
  return to;
}

void HostCall::reduce_for_rail(const Part& block, std::byte* to) {
  if (block.length == 0) return;
  const auto& ranks = memory_->ranks();
  if (algorithm_ != ExchangeAlgorithm::ring) {
    return reduce_here({memory_->host(), {ranks.front(), ranks.back() + 1}}, own_part_, block, to);
  }
  std::vector<const std::byte*> sources;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    sources.push_back(input_at(i, own_part_, block.begin));
  }
  reduce({made().dtype, ReduceOp::sum}, TreePlan::over_ranks(static_cast<int>(ranks.size())),
         sources, std::span(&to, 1), block.length / bytes_of(made().dtype));
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
    const auto block = block_of(parts_[own_part_], round);
    reduce_for_rail(block, rail_partial(block.begin / bytes_of(made().dtype)));
    if (!is_staged_) continue;
    end_phase();  // by all: they have read the stages
    for (const int other : ranks) {
      if (other != rank()) co_await phase_ended_by(other, memory_->phases);
    }
  }
  while (const auto awaited = call_.reduction->advance()) co_await *awaited;
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
