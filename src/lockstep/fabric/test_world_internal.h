// For tests that still include it from here.
#pragma once

#include "lockstep/rendezvous/test_world_internal.h"
