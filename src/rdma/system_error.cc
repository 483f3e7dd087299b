#include "rdma/system_error.h"

#include <sys/resource.h>

#include <string>
#include <system_error>

namespace ch3_offload {
namespace {

Status status_of(int error_number) noexcept {
  switch (error_number) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ETOOMANYREFS: return Status::kNoMemory;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return Status::kPeerFailed;
    default: return Status::kDeviceFailed;
  }
}

std::string remedy(int error_number) {
  if (error_number == EMFILE || error_number == ETOOMANYREFS) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return "; RLIMIT_NOFILE is " + std::to_string(limit.rlim_cur) +
           " and each connected peer needs one: raise it with ulimit -n";
  }
  if (error_number == ENFILE) return "; the node's limit of open files is reached: raise sysctl fs.file-max";
  return {};
}

}  // namespace

Error system_error(std::string_view what, int error_number) {
  // Unlike strerror(), generic_category().message() uses no shared buffer.
  return {
      status_of(error_number), error_number,
      std::string(what) + " failed: " + std::generic_category().message(error_number) + remedy(error_number)};
}

}  // namespace ch3_offload
