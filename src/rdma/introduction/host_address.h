// Which IP address of this node a process gives to the others, to set up connections at.
//
// Threads: any.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/status.h"

namespace ch3_offload {

/// One address of a network interface; an interface with several is listed as often.
struct HostInterface {
  std::string name;
  std::string address;  ///< IPv4 or IPv6, in numbers.
  bool is_up = true;
};

/// What there is to choose from.
struct HostNetwork {
  std::vector<HostInterface> interfaces;  ///< In the kernel's order.
  std::vector<std::string> of_host_name;  ///< The addresses that the host's name stands for, in numbers.
};

/// Whether `wanted` is a list as choose_host_address() takes it: no entry is without a name.
bool is_interface_list(std::string_view wanted);

/// The addresses of this node's interfaces, in the kernel's order.
std::vector<HostInterface> interfaces_of_node();

/// `wanted` is a list as choose_host_address() takes it. Returns the place of its first entry that names
/// `one`. Nothing: no entry names it, or one excludes it.
std::optional<std::size_t> place_in_list(std::string_view wanted, const HostInterface& one);
/// Whether an entry of `wanted` excludes `one`.
bool is_excluded(std::string_view wanted, const HostInterface& one);

/// Chooses an address. `wanted` is a list with commas between. Each entry is a pattern of interface names as
/// in a shell (`ib*`) or an IP address. `!` before an entry excludes what it matches, wherever it stands. The
/// first entry with an interface that is up decides, then the order of the interfaces. A list of nothing but
/// exclusions stands for all other interfaces. An empty list stands for the host's name and then for all
/// interfaces.
///
/// Only an entry without a wildcard yields a link-local IPv4 address, and none a link-local IPv6 address.
/// A loopback address is an error where such an entry names it, and is passed over otherwise. With
/// `loopback_serves`, such an entry yields it.
///
/// Errors: kUnsupported; the message says what is wrong with `wanted`, or that the node has no such address. It
/// names no provider: its caller does.
Result<std::string> choose_host_address(std::string_view wanted, const HostNetwork& node,
                                        bool loopback_serves = false);

enum class AddressFamily { kAny, kIpv4 };

/// The same among the addresses of this node, of that family. Blocks while the host's name is resolved, if
/// `wanted` is empty.
Result<std::string> find_host_address(std::string_view wanted, bool loopback_serves = false,
                                      AddressFamily family = AddressFamily::kAny);

}  // namespace ch3_offload
