// The host side of the test kernel: no CUDA types, so that any compiler can include it.
#pragma once

/// Adds `value` to each of `count` floats in device memory, on the default stream.
/// Returns CUDA's error code; 0 means success.
int add_on_device(float* numbers, int count, float value);
