// In place of the verbs provider, where libibverbs was not there when this library was built.

#include "rdma/verbs/verbs_config.h"

namespace ch3_offload {
namespace {

constexpr const char* kWhy =
    "verbs: this libch3offload was built without libibverbs (install rdma-core's headers, libibverbs-dev on "
    "Debian, and build it again)";

}  // namespace

Result<std::unique_ptr<Provider>> make_verbs_provider(const VerbsConfig&) {
  return Error{Status::kUnsupported, 0, kWhy};
}

std::vector<VerbsPortDescription> describe_verbs_ports(const VerbsConfig&) { return {}; }

std::optional<std::string> why_no_such_port(std::string_view, std::uint16_t) { return kWhy; }

}  // namespace ch3_offload
