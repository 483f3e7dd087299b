// What the verbs provider reads before anything else: frames from a connection and their proofs, addresses
// from cards, and the user's list of devices. Input: one byte says which, the rest is it.

#include <cstring>
#include <string>
#include <string_view>

#include "fuzz/frame_rules.h"
#include "fuzz/target.h"
#include "rdma/verbs/devices/port_selection.h"
#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/verbs_address.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload::fuzz {
namespace frames_target {

enum class What : std::uint8_t { kFrame, kRepairedFrame, kAddress, kDevices, kCount };

constexpr std::uint32_t kMost24Bits = 0xFF'FFFF;

void require_ranges(const Frame& frame) {
  if (frame.kind == FrameKind::kHello) {
    const auto& body = frame.as<HelloBody>();
    // Whoever reads it as a string stays inside.
    const std::size_t length = ::strnlen(body.address.data(), body.address.size());
    require(length < body.address.size(), "an address ends inside its field");
    require(body.lane < kMostLanes, "lanes are numbered from 0");
    return;
  }
  const auto& body = frame.as<OfferBody>();
  require(body.link != 0, "links are numbered from 1");
  require(body.queue_pair <= kMost24Bits && body.packet_sequence <= kMost24Bits, "24 bits are 24 bits");
  require(body.mtu >= 1 && body.mtu <= 5, "an MTU is one of verbs'");
  require(body.limit >= body.received, "what has arrived had credit");
}

void check(std::span<const std::byte> bytes) { check_frame_bytes(bytes, kLinks, require_ranges); }

void check_address(std::string_view text) {
  const std::optional<VerbsAddress> address = VerbsAddress::parse(text);
  if (!address) return;
  require(address->to_string() == text, "an address is spelled in one way only");
  require(text.size() <= VerbsAddress::kMostBytes && address->port != 0, "an address is in its ranges");
  for (const std::string& host : address->hosts) {
    require(host.find('\0') == std::string::npos, "a host is text");
    require(socket_address(host, address->port).has_value(), "an address can be connected to");
  }
  require(address->same_fabric(*address), "a process reaches itself");
}

void check_devices(std::string_view wanted) {
  fake_verbs::DeviceConfig down{.name = "fake1"};
  down.ports[0].state = IBV_PORT_DOWN;
  fake_verbs::reset(
      {.devices = {{.ports = {fake_verbs::ethernet_port(), fake_verbs::infiniband_port(7)}}, down},
       .pump_interval = {}});
  Result<VerbsPorts> ports = survey_verbs_ports(wanted);
  if (ports.ok()) {
    for (const VerbsPort& port : ports.value().usable) {
      require(port.device == "fake0" && (port.port == 1 || port.port == 2), "a port is one that there is");
      require(!port.to_string().empty() && !port.reason.empty(), "a port is described");
    }
    for (const RejectedPort& port : ports.value().rejected)
      require(!port.name.empty() && !port.why.empty(), "a refusal has a reason");
  } else {
    require(!ports.error().message.empty(), "an error says something");
  }
  require(fake_verbs::leaks().none() && fake_verbs::violations().empty(), "nothing is left behind");
}

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  const auto what = What{input.below(static_cast<std::uint8_t>(What::kCount))};
  if (what == What::kRepairedFrame) {
    const Frame frame = repaired_frame(input, kLinks);
    return check(std::as_bytes(std::span(&frame, 1)));
  }
  const auto rest = input.rest();
  if (what == What::kFrame) return check(rest);
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  what == What::kAddress ? check_address(text) : check_devices(text);
}

Seed seed(What what) { return Seed().u8(static_cast<std::uint8_t>(what)); }

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (std::uint8_t kind = 0; kind <= static_cast<std::uint8_t>(FrameKind::kEnd); ++kind) {
    Frame frame = make_frame(kLinks, FrameKind{kind});
    frame.body[0] = std::byte{1};  // A link, a reason.
    if (frame.kind == FrameKind::kOffer) frame.as<OfferBody>().mtu = 3;
    all.push_back(seed(What::kFrame).bytes(std::as_bytes(std::span(&frame, 1))).done());
    all.push_back(seed(What::kRepairedFrame).u8(kind).bytes(frame.body).done());
  }
  for (const char* text :
       {"verbs:4/r/127.0.0.1+127.0.0.2/4711/8192/0000000000000000+0000000000000001/1f0c9a52be7d4e13",
        "verbs:4/i/fe80::1/65535/8192/fe80000000000000/ffffffffffffffff",
        "verbs:4/r/127.0.0.1/4711/8192/1f0c9a52be7d4e13/0000000000000000"})
    all.push_back(seed(What::kAddress).text(text).done());
  for (const char* text :
       {"", "fake0", "fake0:1:1", "fake0:2,fake1", "fake0:3:65535,fake2:1", "fake0:0", ":1"})
    all.push_back(seed(What::kDevices).text(text).done());
  return all;
}

const Target kTarget("frames", run, seeds);

}  // namespace frames_target
}  // namespace ch3_offload::fuzz
