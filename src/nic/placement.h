// Where the thread of a network processor runs: on processors that nobody computes on, or else where it does
// the least harm. A pure function of the topology and of the masks of the node's processes.
//
// The first of these that a process can have, it gets:
//
// | place | the thread's processors | who shares them |
// |---|---|---|
// | kOwnCores | the process's own: more cores than computing threads | nobody |
// | kFreeCores | cores without a process of the job, as near as there are enough | nobody |
// | kHyperthreads | the idle hyperthreads of the process's own cores | nobody, but the core's units |
// | kScarceCores | all cores without a process of the job | other network processors |
// | kSharedCores | the process's own | its computing threads |
//
// The thread is bound to all of the place's processors, not to one: the scheduler finds the idle one among
// them. Only a list of the user's binds it to one processor.
//
// Threads: any; nothing here has state.

#pragma once

#include <cstdint>
#include <span>

#include "nic/node_processes.h"
#include "nic/topology.h"
#include "rdma/processor_set.h"

namespace ch3_offload {

enum class Place : std::uint8_t {
  kOwnCores,
  kFreeCores,
  kHyperthreads,
  kScarceCores,
  kSharedCores,
  kChosen,   ///< By the user.
  kUnknown,  ///< The topology is not known: the thread runs where its process may.
};

struct Placement {
  Place place = Place::kUnknown;
  ProcessorSet processors;      ///< That the thread may run on. Empty: cannot tell.
  bool thread_shares = false;   ///< Others want the thread's processors all the time, so it gives them away.
  bool client_shares = false;   ///< The thread runs on processors that its process needs.
  bool has_core = false;        ///< The thread has a core to itself.
  bool all_have_cores = false;  ///< So have those of all processes of the node, as far as is known.
  bool node_has_core = false;   ///< One processor for the whole node would have a core to itself.
  bool some_client_shares = false;  ///< Some process of the node has client_shares.
};

/// Of this process's thread.
Placement place_thread(const Topology& topology, const NodeProcesses& node);

/// The same by the user's list: the entry whose number is the local rank, from the start again at its end.
/// REQUIRES: the list is not empty.
Placement place_by_list(std::span<const std::uint32_t> processors, const NodeProcesses& node);

/// The same without a topology: the thread is not bound.
Placement place_nowhere(const NodeProcesses& node);

}  // namespace ch3_offload
