// Queue pairs between processes: how they are made, lost, made again, and given up. What goes over them is
// Transport's.
//
// The life of a link. Introductions (rdma/introduction/introducer.h) bring the offers. Numbers only grow, but
// that of a proposal that nobody answered is used again.
//
//   who dialled:   kNone ── propose(): our offer(n) sent ──▶ kProposed ── the peer's offer(n) ──▶ kUp
//   who accepted:  kNone ── the peer's offer(n), propose(): ours is sent ──▶ kBound ── Ready, or an item ──▶ kUp
//   both:          kProposed, kBound, kUp ── an error, or a later offer of the peer's ──▶ kDraining
//                  kDraining ── all that came was taken ──▶ kNone, and a new introduction if one is needed
//                  kUp ── nothing is acknowledged for long, or its port was down ──▶ kDraining
//                  kUp ── parked: both have sent kPark, and all items are acknowledged ──▶ kNone
//
// Where two processes have two pairs of rails in common, the number of a link says which one it is on
// (rail_of()), and who proposes skips a number to get the other: n + 2 for n + 1.
//
//   links.cc           wanted, made, lost, looked after
//   introductions.cc   what introductions tell
//
// Threads: as rdma/provider.h says. Not on the message path: may allocate.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "rdma/introduction/introducer.h"
#include "rdma/log.h"
#include "rdma/provider.h"
#include "rdma/verbs/devices/rail.h"
#include "rdma/verbs/links/parking.h"
#include "rdma/verbs/marked_list.h"
#include "rdma/verbs/transport/transport.h"
#include "rdma/verbs/verbs_endpoint.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload {

class Links final : public Introducer::Client, public Transport::Client, private Parking::Client {
 public:
  /// What links are told and ask of peers.
  class Client {
   public:
    /// The lane of a peer that says who it is. Returns nullptr if this is no peer of ours, or not any more.
    /// Throws std::bad_alloc.
    virtual VerbsLane* meet(PeerId peer, std::uint32_t lane, const VerbsAddress& address,
                            const PeerNames& names) = 0;
    /// The peer's end has become known.
    virtual void on_peer_over(VerbsEndpoint& peer, Status reason) noexcept = 0;
    virtual void on_rail_failed(Rail& rail, const char* why) noexcept = 0;
    /// tick() or make_wanted() has something to do.
    virtual void on_work() noexcept = 0;

   protected:
    ~Client() = default;
  };

  struct Config {
    PeerId self{};
    const VerbsAddress& address;  ///< Of this process. Stays valid.
    std::uint64_t peer_timeout_ms = 10'000;
  };
  struct Figures {
    std::uint64_t made = 0;
    std::uint64_t lost = 0;
    std::uint64_t parked = 0;
    std::uint64_t items_sent_again = 0;
  };
  enum class Cause : std::uint8_t {
    kFailure,
    kStall,    ///< Its device says nothing: no word about the peer.
    kRenewal,  ///< By the peer, or because the port was down.
  };

  /// `rails` outlive this. `transport` is made after it, and destroyed before.
  Links(const Config& config, std::span<const std::unique_ptr<Rail>> rails, Log log, Client& client,
        Transport& transport)
      : config_(config),
        address_text_(config.address.to_string()),
        rails_(rails),
        log_(log),
        client_(client),
        transport_(transport),
        parking_(transport, *this) {}
  /// To be called once, before anything else. `introducer` is destroyed before this.
  void introduce_by(Introducer& introducer) noexcept { introducer_ = &introducer; }

  /// Prepares for so many lanes. Throws std::bad_alloc.
  void make_room(std::size_t lanes);
  /// Asks for a link: make_wanted() dials the peer, or makes a queue pair.
  void want_link(VerbsLane& lane) noexcept override;
  /// Gives a queue pair up; what it held is kept and sent over the next one, on another rail if there is one.
  void lose_link(VerbsLane& lane, const char* why, Cause cause) noexcept;
  void lose_link(VerbsLane& lane, const char* why) noexcept override {
    lose_link(lane, why, Cause::kFailure);
  }
  /// Ends the links with a peer. What they have brought is still delivered; then has_link() is false.
  void abandon(VerbsEndpoint& peer) noexcept;
  static bool has_link(const VerbsEndpoint& peer) noexcept;
  /// The port of a rail went down, and there is another one, or came up.
  void on_port(VerbsEndpoint& peer, const Rail& rail) noexcept;

  /// Dials, and makes queue pairs, for those who want a link.
  void make_wanted(std::uint64_t now_ns) noexcept;
  bool has_wanted() const noexcept { return !waiting_.empty(); }
  /// Destroys stopped queue pairs, and goes on parking. To be called each millisecond or so while is_busy().
  void tick(std::uint64_t now_ns) noexcept;
  /// Whether tick() or make_wanted() is to be called soon.
  bool is_busy() const noexcept;
  /// Looks after all links: probes silent peers that `sink` awaits, and replaces links on which nothing is
  /// acknowledged. To be called every look_ns(). `at_once`: probes all peers. Returns whether some could not
  /// be probed yet.
  bool look(const Sink& sink, bool at_once) noexcept;
  std::uint64_t look_ns() const noexcept { return config_.peer_timeout_ms * 1'000'000 / LinkTimer::kLooks; }
  /// Finds out whether a peer that has no link any more lives, if `sink` awaits it. Returns whether it is
  /// dialled for that.
  bool check(VerbsEndpoint& peer, const Sink& sink) noexcept;

  const Figures& figures() const noexcept { return figures_; }
  /// No link that breaks is logged any more.
  void leave() noexcept { loss_logged_ = true; }

 private:
  // links.cc
  void on_first_item(VerbsLane& lane) noexcept override { link_is_up(lane); }
  void on_park(VerbsLane& lane) noexcept override {
    // Through a link that was lost, it says nothing about the next one.
    if (lane.link.state == LinkState::kUp) parking_.on_heard(lane);
  }
  void on_all_retired(VerbsLane& lane) noexcept override { parking_.advance(lane); }
  void on_credit_wanted(VerbsLane& lane) noexcept override;
  void on_peer_over(VerbsEndpoint& peer, Status reason) noexcept override {
    client_.on_peer_over(peer, reason);
  }
  void on_rail_failed(Rail& rail, const char* why) noexcept override { client_.on_rail_failed(rail, why); }
  void on_parked(VerbsLane& lane) noexcept override;
  Rail& rail_of(const VerbsLane& lane) const noexcept { return *rails_[lane.rail]; }
  Rail& rail_of(const VerbsLane& lane, std::uint32_t link_number) const noexcept;
  std::uint32_t next_number(const VerbsLane& lane) const noexcept;
  bool propose(VerbsLane& lane, std::uint64_t now_ns) noexcept;
  bool start_over(VerbsLane& lane, std::uint32_t number) noexcept;
  void drop_introductions(VerbsLane& lane) noexcept;
  QueuePair make_queue_pair(Rail& rail, VerbsLane& lane) noexcept;
  static bool may_make_link(const Rail& rail, bool is_answer) noexcept;
  OfferBody offer_of(VerbsLane& lane) noexcept;
  bool bind(VerbsLane& lane) noexcept;
  void link_is_up(VerbsLane& lane) noexcept;
  void stop(VerbsLane& lane, Rail::End end) noexcept;
  void on_stopped(VerbsLane& lane) noexcept;
  static bool is_needed(const VerbsLane& lane) noexcept;
  bool look(VerbsLane& lane, const Sink& sink, bool at_once) noexcept;

  // introductions.cc
  static VerbsLane& lane_of(Introducer::Contact& contact) noexcept;
  static const VerbsLane& lane_of(const Introducer::Contact& contact) noexcept;
  void fill_in(HelloBody& body, const VerbsLane& lane) const noexcept;
  std::size_t addresses(const Introducer::Contact& contact) const noexcept override;
  SocketAddress address(const Introducer::Contact& contact, std::size_t index) const noexcept override;
  bool our_dial_counts(const Introducer::Contact& contact) const noexcept override;
  void say_hello(const Introducer::Contact& contact, Frame& hello) const noexcept override;
  std::optional<Refusal> meet(const Frame& hello, Introducer::Guest& guest, Frame& answer) override;
  std::optional<Refusal> identify(const Frame& offer, Introducer::Guest& guest) noexcept override;
  bool on_answer(Introducer::Contact& contact, const Frame& hello) noexcept override;
  void on_offer(Introducer::Contact& contact, const Frame& offer, bool is_answer) noexcept override;
  void on_ready(Introducer::Contact& contact) noexcept override;
  void on_broken(Introducer::Contact& contact) noexcept override;
  void on_knock(Introducer::Contact& contact, std::uint32_t peers_last_link) noexcept override;
  void on_gone(Introducer::Contact& contact, Refusal reason) noexcept override;
  void on_silence(Introducer::Contact& contact, Introducer::Silence silence) noexcept override;

  const Config config_;
  const std::string address_text_;
  std::span<const std::unique_ptr<Rail>> rails_;
  const Log log_;
  Client& client_;
  Transport& transport_;
  Introducer* introducer_ = nullptr;
  Parking parking_;
  MarkedList<VerbsLane, &VerbsLane::waits>
      waiting_;                 ///< A peer is to be dialled, or a queue pair to be made.
  std::size_t being_made_ = 0;  ///< make_wanted(): lanes that it still looks at.
  bool loss_logged_ = false;
  bool silence_logged_ = false;
  bool queue_pair_logged_ = false;
  Figures figures_;
};

}  // namespace ch3_offload
