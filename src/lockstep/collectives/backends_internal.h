// How a ProcessGroup connects its ranks.
#pragma once

#include <functional>
#include <memory>

namespace lockstep {

struct BackendOptions;  // fabric/backend_choice.h
class DeviceFunctions;  // gpu/device_functions.h
class Group;            // fabric/group.h
struct GroupOptions;
class World;

/// The functions of CUDA, as gpu/device_functions.h declares them. They are handed to backends.cpp:
/// a program without LibTorch has its groups from there too, and must not load the CUDA runtime.
[[nodiscard]] std::shared_ptr<DeviceFunctions> cuda_functions();

/// As make_group() of backends.h, with GPU memory, for which `functions` is called when a device is
/// first used. `is_fast`: sums of floating point may be added in an order that no other backend
/// has.
[[nodiscard]] std::shared_ptr<Group> make_group_with_devices(
    const World& world, const GroupOptions& options, const BackendOptions& backend, bool is_fast,
    std::function<std::shared_ptr<DeviceFunctions>()> functions);

}  // namespace lockstep
