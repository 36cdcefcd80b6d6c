// The binary interface of NCCL since version 2.14. A test compares it with NCCL's header.
#pragma once

#include <cstddef>

#include "lockstep/gpu/nccl_functions.h"

namespace lockstep {

struct NcclUniqueId {
  NcclId bytes = {};
};

/// The first fields of ncclConfig_t; NCCL chooses what `size` leaves out.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeefU;
  unsigned version = 21400;
  int blocking = 0;  // its functions return at once
};

// ncclResult_t
constexpr int kNcclSuccess = 0;
constexpr int kNcclInProgress = 7;
// ncclDataType_t
constexpr int kNcclUint8 = 1;
constexpr int kNcclFloat16 = 6;
constexpr int kNcclFloat32 = 7;
constexpr int kNcclFloat64 = 8;
constexpr int kNcclBfloat16 = 9;
// ncclRedOp_t
constexpr int kNcclSum = 0;
constexpr int kNcclAverage = 4;

}  // namespace lockstep
