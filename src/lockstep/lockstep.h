// Everything a program that trains with lockstep includes.
#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/random.h"
#include "lockstep/base/version.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sample_dataset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/token_windows.h"
#include "lockstep/data/torch_data.h"
#include "lockstep/launch/init.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/trace/counter.h"
#include "lockstep/trace/jsonl_writer.h"
#include "lockstep/trace/span.h"
