// Which of two processes comes first, where both must find the same.

#pragma once

#include <cstdint>
#include <tuple>

#include "rdma/provider.h"

namespace ch3_offload {

/// Of two processes, as one of them sees them: both find the same one first, whatever numbers they use.
/// RULE NO COMMON NUMBERS (src/engine/README.md). In a job it is the one with the lower number. `instance`
/// and `peers_instance` are random numbers, by which two processes at one address differ.
inline bool comes_first(PeerId self, std::uint64_t instance, PeerId peer, const PeerNames& names,
                        std::uint64_t peers_instance) noexcept {
  return std::tuple(self, names.known_as, instance) < std::tuple(names.own, peer, peers_instance);
}

}  // namespace ch3_offload
