#include "lockstep/gpu/connect.h"

#include <utility>

#include "lockstep/gpu/device_plane_internal.h"

namespace lockstep {

Connect connect_with_devices(Connect host, DeviceOptions options) {
  return [host = std::move(host), options = std::move(options)](
             const Membership& membership, AddressExchange& addresses, Deadline deadline,
             const Watch& watch) {
    auto planes = host(membership, addresses, deadline, watch);
    // One rank moves no data, unless a backend was requested.
    if (membership.size() == 1 && !options.backend.backend) return planes;
    planes.device =
        std::make_unique<DeviceDataPlane>(options, membership, *planes.control, *planes.data);
    return planes;
  };
}

}  // namespace lockstep
