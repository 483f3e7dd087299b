// What a process publishes about itself: its card, as the engine reads it from Engine::introduce(), and in it
// the address of the shm provider. Input: bit 0 of one byte says how the connection attempt ends, the rest is
// the card.

#include <string>
#include <string_view>

#include "engine/card.h"
#include "engine/engine.h"
#include "engine/event_handler.h"
#include "fuzz/stand_in_provider.h"
#include "fuzz/target.h"
#include "nic/host_driver.h"
#include "rdma/shm/shm_connection.h"

namespace ch3_offload::fuzz {
namespace card_target {

constexpr PeerId kPeer{1};

class CardHolder final : public EventHandler {
 public:
  explicit CardHolder(std::string_view card) : card_(card) {}

  void on_send_done(Cookie, Status) noexcept override { ++done; }
  void on_receive_done(Cookie, const Envelope&) noexcept override {}
  void on_cancel_done(Cookie, bool) noexcept override {}
  void on_packet(PeerId, std::span<const std::byte>) noexcept override {}
  Payload on_packet_offer(PeerId, std::size_t) noexcept override { return {}; }
  void on_packet_placed(PeerId, std::size_t) noexcept override {}
  void on_peer_failed(PeerId, Status) noexcept override {}
  std::string on_card_wanted(PeerId) override { return std::string(card_); }
  void on_warning(LogScope, std::string_view text) noexcept override {
    require(!text.empty(), "a warning says something");
    ++warnings;
  }

  int done = 0;
  int warnings = 0;

 private:
  const std::string_view card_;
};

void check_address(std::string_view text) {
  const std::optional<ShmAddress> address = ShmAddress::parse(text);
  require(!address || address->to_string() == text, "an address is spelled in one way only");
}

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  const bool refuse = input.flag();
  const auto rest = input.rest();
  const std::string_view card(reinterpret_cast<const char*>(rest.data()), rest.size());
  check_address(card);

  StandInProvider provider(2, {"stand-in", 4096, false, SIZE_MAX});
  provider.connect_answer = refuse ? Status::kNoMemory : Status::kOk;
  CardHolder host(card);
  EngineConfig config;
  config.senders = 2;
  Provider* const providers[] = {&provider};
  HostDriver engine(config, providers);
  std::byte data[8] = {};
  OperationId operation{};
  Status status = Status::kOk;
  const Progressed progressed =
      engine.send(kPeer, SendMode::kStandard, MatchKey{}, {data, sizeof data}, 0, &host, operation, status);
  require(progressed == Progressed::kPending, "a send waits for the introduction");
  progress(engine, host);
  const bool connected = engine.counters().connected_peers == 1;
  require(connected != (host.warnings == 1), "the user is told once why not");
  require(connected == !provider.sent_to(kPeer).empty(), "a send leaves where there is a connection");
  progress(engine, host);
  provider.peer_down(kPeer, Status::kPeerFailed);
  progress(engine, host);
  require(engine.counters().connected_peers == 0 && engine.idle(), "the end is the end");
  require(host.done == 1, "a pending send is done once");
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  const std::string address = "shm:1:1f0c9a52be7d4e13:9b2d6c0f54a8e7317c1e5a90d3f2468b";
  const std::string version = card_version();
  const std::string cards[] = {version + ";" + address,
                               version + ";;x=1;" + address,
                               version + ";verbs:1:abc;" + address + ";stand-in",
                               "v=2;w=1;" + address,
                               version + ";stand-in",
                               version + ";as=4;to=0;stand-in",
                               version + ";as=4;stand-in",
                               version + ";w=1x;;w=;stand-in",
                               version + ";nobody:here",
                               address,
                               ""};
  for (const std::string& card : cards) {
    for (const std::uint8_t refuse : {0, 1}) all.push_back(Seed().u8(refuse).text(card).done());
  }
  return all;
}

const Target kTarget("card", run, seeds);

}  // namespace card_target
}  // namespace ch3_offload::fuzz
