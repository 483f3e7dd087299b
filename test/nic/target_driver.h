// The drivers of the second client's port, as tests name them (target_ports_world.h).

#pragma once

namespace ch3_offload {

enum class TargetDriver { kHost, kStepped, kOther, kThread };

}  // namespace ch3_offload
