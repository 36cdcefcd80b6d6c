// Directs the calls of LibTorch's batch_norm on a thread to SyncedBatchNorms, without a change of
// the model. torch::nn::BatchNorm1d to BatchNorm3d all call the operator aten::batch_norm with
// their running statistics and weight, by which the layer is recognized.
//
// How: LibTorch's dispatcher chooses an operator's kernel by dispatch keys, and a thread may
// include a key in all of its calls. This room registers a kernel of aten::batch_norm for a key
// that LibTorch reserves and does not use (TESTING_ONLY_GenericMode); with that key, all other
// operators run as without it. The registration belongs to the process; it has no effect on a
// thread that has not included the key, which only redirect_batch_norms() does. Autograd passes the
// keys of the thread that calls backward() on to the threads that run it for a GPU.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/ddp/synced_batch_norms_internal.h"

namespace lockstep {

/// From now on the training calls of these layers on this thread are theirs, until stop().
void redirect_batch_norms(const std::shared_ptr<SyncedBatchNorms>& layers);
/// After stop(): excludes the key from this thread's calls if no layers are left.
void clean_redirections();
/// The layers that have not stopped, in the order of redirect_batch_norms() on this thread.
[[nodiscard]] std::vector<std::shared_ptr<SyncedBatchNorms>> redirected_batch_norms();

}  // namespace lockstep
