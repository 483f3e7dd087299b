// What the environment says of the launcher that has started this process.
//
// Threads: any, while none changes the environment.

#pragma once

#include <string>

namespace ch3_offload {

/// A process that no process manager of MPICH has started is a job of its own. Returns a line for the user if
/// another launcher has started it as one of several: srun with another --mpi= than pmi2, the launcher of Open
/// MPI, or one that speaks PMIx. Of those that it has started together, one alone has something to say.
/// Empty: there is nothing to say, or MPICH's process manager is there (PMI_FD, PMI_PORT).
std::string singleton_complaint();

}  // namespace ch3_offload
