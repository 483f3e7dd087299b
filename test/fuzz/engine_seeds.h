// Whole conversations with valid peers, as inputs of the engine's fuzz target.

#pragma once

#include "fuzz/target.h"

namespace ch3_offload::fuzz {

std::vector<Bytes> engine_seeds();

}  // namespace ch3_offload::fuzz
