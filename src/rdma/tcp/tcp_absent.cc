// In place of the TCP provider, where libsodium was not there when this library was built.

#include "rdma/tcp/tcp_config.h"

namespace ch3_offload {
namespace {

Error absent() {
  return {
      Status::kUnsupported, 0,
      "tcp: this libch3offload was built without libsodium, by which processes prove who they are (install "
      "its headers, libsodium-dev on Debian, and build it again)"};
}

}  // namespace

Result<std::unique_ptr<Provider>> make_tcp_provider(const TcpConfig&) { return absent(); }

Result<std::string> find_tcp_host(const TcpConfig&) { return absent(); }

}  // namespace ch3_offload
