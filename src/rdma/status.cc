#include "rdma/status.h"

namespace ch3_offload {

const char* status_name(Status status) noexcept {
  switch (status) {
    case Status::kOk: return "Ok";
    case Status::kAgain: return "Again";
    case Status::kTruncated: return "Truncated";
    case Status::kUnsupported: return "Unsupported";
    case Status::kNoMemory: return "NoMemory";
    case Status::kUnreachable: return "Unreachable";
    case Status::kPeerFailed: return "PeerFailed";
    case Status::kProtocol: return "Protocol";
    case Status::kRevoked: return "Revoked";
    case Status::kDeviceFailed: return "DeviceFailed";
  }
  return "Unknown";
}

}  // namespace ch3_offload
