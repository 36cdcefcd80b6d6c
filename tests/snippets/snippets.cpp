// The C++ of the pages and of header comments, compiled and never run. extract.py writes
// snippets.inc.
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "lockstep/lockstep.h"
#include "lockstep/metrics/metrics_log.h"
#include "models/gpt_generation.h"
#include "tests/snippets/prelude.h"

#include "snippets.inc"
