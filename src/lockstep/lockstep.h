// Everything a program that trains with lockstep includes.
#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/random.h"
#include "lockstep/base/version.h"
#include "lockstep/collectives/process_group.h"
#include "lockstep/launch/init.h"
#include "lockstep/rendezvous/world.h"
#include "lockstep/trace/counter.h"
#include "lockstep/trace/jsonl_writer.h"
#include "lockstep/trace/span.h"
