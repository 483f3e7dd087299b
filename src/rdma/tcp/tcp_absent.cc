// In place of the TCP provider, where libsodium was not there when this library was built.

#include "rdma/tcp/tcp_config.h"

namespace ch3_offload {

Result<std::unique_ptr<Provider>> make_tcp_provider(const TcpConfig&) {
  return Error{Status::kUnsupported, 0,
               "tcp: this libch3offload was built without libsodium, by which processes prove who they are "
               "(install its headers, libsodium-dev on Debian, and build it again)"};
}

}  // namespace ch3_offload
