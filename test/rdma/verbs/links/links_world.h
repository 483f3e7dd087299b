// Processes with Links over the fake device, for the tests of Links. Introductions are made by the test,
// without TCP: step by step, crossed, broken off, or not at all.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "rdma/contract_world.h"
#include "rdma/monotonic_clock.h"
#include "rdma/verbs/devices/fake_rails.h"
#include "rdma/verbs/links/links.h"

namespace ch3_offload {

class LinksEnd;

/// All introductions of a test. Each goes through these steps, one at a call of step():
/// Hello, our offer is allowed, it arrives, the answer arrives, Ready arrives.
class MadeIntroductions {
 public:
  using Contact = Introducer::Contact;
  static Frame offer_frame(const OfferBody& offer) {
    Frame frame = make_frame(kLinks, FrameKind::kOffer);
    frame.as<OfferBody>() = offer;
    return frame;
  }
  enum class Step { kHello, kAllowed, kOffer, kAnswer, kReady };

  struct Introduction {
    LinksEnd* dialler;
    LinksEnd* acceptor;
    Contact* dialled;          ///< The dialler's contact.
    Contact* guest = nullptr;  ///< The acceptor's, after Hello.
    Step next = Step::kHello;
    Frame hello{};  ///< The acceptor's.
    std::optional<OfferBody> offer{}, answer{};
    bool is_ready = false;
    bool dialler_left = false, acceptor_left = false;  ///< Closed; the other side does not know yet.
    int rests = 0;  ///< Polls of the dialler before it dials again. The peer may have dialled by then.
  };

  /// Takes the next step of the oldest introduction that can go on. Returns false if none can.
  bool step();
  /// Whether the oldest introduction is about to take that step.
  bool is_before(Step next) const {
    return !list.empty() && list.front().next == next && has_due(list.front());
  }
  /// The connections of all introductions break. Diallers dial again, later.
  void break_off();
  void on_poll(const LinksEnd& process);

  std::list<Introduction> list;
  std::vector<LinksEnd*> processes;  ///< By PeerId.

 private:
  using Place = std::list<Introduction>::iterator;
  static bool has_due(const Introduction& one);
  bool is_dialled_by(const LinksEnd& process, const Contact& contact) const;
  bool step(Place at);
  void on_offer(Place at);
  void fail(Place at);
};

/// The introducer of one process.
class StepwiseIntroducer final : public Introducer {
 public:
  StepwiseIntroducer(LinksEnd& owner, MadeIntroductions& all) noexcept : owner_(owner), all_(all) {}

  void seek(Contact& contact) noexcept override;
  void check(Contact& contact) noexcept override { checked.push_back(peer_of(contact)); }
  void drop(Contact& contact) noexcept override;
  void offer(Contact& contact, Frame& offer) noexcept override;
  void ready(Contact& contact) noexcept override;
  void poll() { all_.on_poll(owner_); }
  static PeerId peer_of(const Contact& contact) { return static_cast<const VerbsLane&>(contact).peer->id; }

  std::set<Contact*> sought;
  std::vector<PeerId> checked;
  std::vector<OfferBody> offers;  ///< All that were made.
  int dials = 0, drops = 0;

 private:
  LinksEnd& owner_;
  MadeIntroductions& all_;
};

/// A process. It knows its peers from the start.
class LinksEnd final : public Links::Client, private Rail::Client {
 public:
  struct Options {
    std::uint32_t most_queue_pairs = 64;
    std::uint32_t most_receive_slots = 2048;
    std::uint32_t slots_per_slab = 64;
  };

  LinksEnd(std::uint32_t self, std::uint32_t peer_count, const Options& options, MadeIntroductions& all)
      : id{self},
        address(address_of(self)),
        rails(open_rails({.slot_bytes = 512,
                          .slots_per_slab = options.slots_per_slab,
                          .most_receive_slots = options.most_receive_slots,
                          .most_queue_pairs = options.most_queue_pairs,
                          .send_queue_depth = Link::kSendQueueDepth})),
        registrations(rails),
        links({id, address, kPeerTimeoutMs}, rails, Log(&take_line, this), *this, transport),
        transport(rails, registrations, make_send_slots(rails, 256), Log(&take_line, this), links),
        introducer(*this, all) {
    links.introduce_by(introducer);
    links.make_room(2 * peer_count);
    transport.make_room(2 * peer_count);
    for (std::uint32_t i = 0; i < peer_count; ++i) {
      peers.push_back(std::make_unique<VerbsEndpoint>(PeerId{i}));
      peers.back()->names = {id, PeerId{i}};
      peers[i]->address = address_of(i);
      peers[i]->has_address = true;
      for (const std::unique_ptr<Rail>& rail : rails)
        peers[i]->pairs[peers[i]->pair_count++] = {rail->index, rail->index};
      if (rails.size() > 1) peers[i]->second = std::make_unique<VerbsLane>(*peers[i], 1);
    }
  }

  static VerbsAddress address_of(std::uint32_t process) {
    VerbsAddress made;
    made.hosts = {"192.0.2.1"};
    made.port = 1000;
    made.networks = {0};
    made.slot_bytes = 512;
    made.instance = 1 + process;
    return made;
  }
  /// As VerbsProvider::poll() does it, an hour after the last one: nothing waits for time.
  std::size_t poll() {
    const std::uint64_t now_ns = monotonic_ns() + ++polls_ * kHourNs;
    introducer.poll();
    transport.begin_poll(sink);
    const bool emptied = transport.take_completions(64);
    for (const std::unique_ptr<Rail>& rail : rails) rail->take_events(*this);
    links.make_wanted(now_ns);
    links.tick(now_ns);
    for (const auto& peer : peers)
      if (peer->dying && emptied && !Links::has_link(*peer)) {
        peer->dying = false;
        peer->down = true;
        transport.end_peer(*peer);
      }
    return transport.end_poll();
  }
  /// Takes an eighth of the peer time-out.
  bool look(bool at_once = false) {
    transport.begin_poll(sink);
    const bool is_incomplete = links.look(transport.sink(), at_once);
    transport.end_poll();
    return is_incomplete;
  }
  Status try_send(std::uint32_t to, std::uint64_t n) {
    const std::vector<std::byte> bytes = message(n);
    std::span<std::byte> slot;
    const Status status = transport.reserve(*peers[to], bytes.size(), slot);
    if (status != Status::kOk) return status;
    std::memcpy(slot.data(), bytes.data(), bytes.size());
    transport.commit(*peers[to], bytes.size());
    return Status::kOk;
  }
  /// The `n`th message of a test.
  static std::vector<std::byte> message(std::uint64_t n) { return Pattern(n).bytes(1 + n * 37 % 500); }
  /// Whether the messages that arrived from `from` are the first `count` ones, in their order.
  bool got(std::uint32_t from, std::size_t count) const {
    std::size_t n = 0;
    for (const RecordingSink::Event& event : sink.events) {
      if (event.kind != RecordingSink::Kind::kMessage || event.peer != PeerId{from}) continue;
      if (event.bytes != message(n++)) return false;
    }
    return n == count;
  }
  VerbsLane& lane(std::uint32_t peer, std::size_t index = 0) {
    return index == 0 ? peers[peer]->main : *peers[peer]->second;
  }
  Link& link(std::uint32_t peer) { return lane(peer).link; }
  /// What the introducer tells.
  Introducer::Client& told() { return links; }
  const Introducer::Client& told() const { return links; }
  bool logged(std::string_view part) const {
    return std::ranges::any_of(lines,
                               [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }

  VerbsLane* meet(PeerId peer, std::uint32_t lane_index, const VerbsAddress&, const PeerNames&) override {
    if (peers[index_of(peer)]->is_over()) return nullptr;
    return &lane(index_of(peer), lane_index);
  }
  void on_peer_over(VerbsEndpoint& peer, Status reason) noexcept override {
    if (peer.is_over()) return;
    over.push_back(reason);
    peer.dying = true;
    peer.reason = reason;
    links.abandon(peer);
  }
  void on_rail_failed(Rail& rail, const char*) noexcept override { rail.lost = true; }
  void on_work() noexcept override { ++works; }

  static constexpr std::uint64_t kPeerTimeoutMs = 8000;

  const PeerId id;
  const VerbsAddress address;
  std::vector<std::unique_ptr<Rail>> rails;
  Registrations registrations;
  RecordingSink sink;
  std::vector<std::unique_ptr<VerbsEndpoint>> peers;  ///< By PeerId; the process itself is there, and unused.
  Links links;
  Transport transport;
  StepwiseIntroducer introducer;
  std::vector<Status> over;
  std::vector<std::string> lines;
  int works = 0;

 private:
  static constexpr std::uint64_t kHourNs = 3'600'000'000'000;

  static void take_line(void* self, LogScope, const char* line) {
    static_cast<LinksEnd*>(self)->lines.emplace_back(line);
  }
  void on_queue_pair_failed(VerbsLane& lane, const char* why) noexcept override {
    links.lose_link(lane, why, Links::Cause::kFailure);
  }
  void on_address_changed(Rail&, const char*) noexcept override {}
  void on_port(Rail& rail, bool is_up) noexcept override {
    rail.up = is_up;
    for (const auto& peer : peers) links.on_port(*peer, rail);
  }
  void on_device_failed(Rail& rail, const char*, LogScope) noexcept override { rail.lost = true; }

  std::uint64_t polls_ = 0;
};

class LinksWorld : public FakeRails {
 protected:
  using Kind = RecordingSink::Kind;
  using Step = MadeIntroductions::Step;

  void make(std::uint32_t size = 2, const LinksEnd::Options& options = {},
            const fake_verbs::Config& fake = {}) {
    ends_.clear();
    introductions_.list.clear();
    fake_verbs::reset(timeless(fake));
    for (std::uint32_t i = 0; i < size; ++i)
      ends_.push_back(std::make_unique<LinksEnd>(i, size, options, introductions_));
    introductions_.processes.clear();
    for (const auto& end : ends_) introductions_.processes.push_back(end.get());
  }
  ~LinksWorld() override { ends_.clear(); }
  LinksEnd& at(std::uint32_t i) { return *ends_[i]; }
  LinksEnd& one() { return at(0); }
  LinksEnd& other() { return at(1); }
  std::size_t poll_all() {
    std::size_t found = 0;
    for (const auto& end : ends_) found += end->poll();
    return found;
  }
  /// Polls everybody and makes introductions until nothing happens.
  void settle() {
    for (int quiet = 0, rounds = 0; quiet < 8; ++quiet) {
      ASSERT_LT(++rounds, 10'000);
      if (poll_all() > 0) quiet = 0;
      while (introductions_.step()) quiet = 0;
    }
  }
  /// Polls everybody and makes introductions until the oldest one is about to take that step.
  void settle_before(Step next) {
    for (int rounds = 0; !introductions_.is_before(next); ++rounds) {
      ASSERT_LT(rounds, 1000);
      if (!introductions_.step()) poll_all();
    }
  }
  /// `from` sends messages `first` .. `end` - 1, however long that takes.
  void send(std::uint32_t from, std::uint32_t to, std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t n = first; n < end; ++n) {
      Status status;
      for (int rounds = 0; (status = at(from).try_send(to, n)) == Status::kAgain; ++rounds) {
        ASSERT_LT(rounds, 10) << "no room for message " << n;
        settle();
      }
      ASSERT_EQ(status, Status::kOk) << n;
    }
  }
  /// Message 0 has gone both ways, and both know it acknowledged.
  void establish(std::uint32_t a = 0, std::uint32_t b = 1) {
    send(a, b, 0, 1);
    settle();
    send(b, a, 0, 1);
    settle();
    flush(a, b);
    ASSERT_TRUE(at(a).got(b, 1) && at(b).got(a, 1));
    ASSERT_EQ(at(a).link(b).state, LinkState::kUp);
    ASSERT_EQ(at(b).link(a).state, LinkState::kUp);
  }
  void flush(std::uint32_t a = 0, std::uint32_t b = 1) {
    at(a).transport.flush_tail(at(a).lane(b));
    at(b).transport.flush_tail(at(b).lane(a));
    settle();
    ASSERT_TRUE(at(a).link(b).all_retired() && at(b).link(a).all_retired());
  }
  static void hold_acknowledgements(bool held) {
    fake_verbs::adjust([&](fake_verbs::Config& config) {
      config.acknowledge_delay = held ? std::chrono::hours(1) : std::chrono::hours(0);
    });
  }

  MadeIntroductions introductions_;
  std::vector<std::unique_ptr<LinksEnd>> ends_;
};

inline void StepwiseIntroducer::seek(Contact& contact) noexcept {
  EXPECT_EQ(owner_.told().address(contact, 0).host(), "192.0.2.1");
  if (!sought.insert(&contact).second) return;
  ++dials;
  all_.list.push_back(
      {.dialler = &owner_, .acceptor = all_.processes[index_of(peer_of(contact))], .dialled = &contact});
}

inline void StepwiseIntroducer::drop(Contact& contact) noexcept {
  ++drops;
  sought.erase(&contact);
  for (MadeIntroductions::Introduction& one : all_.list) {
    if (one.dialled == &contact) one.dialler_left = true;
    if (one.guest == &contact) one.acceptor_left = true;
  }
}

inline void StepwiseIntroducer::offer(Contact& contact, Frame& frame) noexcept {
  const auto& offer = frame.as<OfferBody>();
  offers.push_back(offer);
  for (MadeIntroductions::Introduction& one : all_.list) {
    if (one.dialled == &contact && !one.dialler_left && one.next == MadeIntroductions::Step::kOffer) {
      EXPECT_FALSE(one.offer);
      one.offer = offer;
      return;
    }
    if (one.guest == &contact && !one.acceptor_left && one.next == MadeIntroductions::Step::kAnswer) {
      EXPECT_FALSE(one.answer);
      one.answer = offer;
      return;
    }
  }
  ADD_FAILURE() << "nothing allowed this offer";
}

inline void StepwiseIntroducer::ready(Contact& contact) noexcept {
  for (MadeIntroductions::Introduction& one : all_.list)
    if (one.dialled == &contact && one.next == MadeIntroductions::Step::kReady) one.is_ready = true;
  sought.erase(&contact);
}

inline void MadeIntroductions::on_poll(const LinksEnd& process) {
  for (Introduction& one : list)
    if (one.dialler == &process && one.rests > 0) --one.rests;
}

inline bool MadeIntroductions::has_due(const Introduction& one) {
  if (one.rests > 0) return false;
  switch (one.next) {
    case Step::kOffer: return one.offer.has_value();
    case Step::kAnswer: return one.answer.has_value();
    case Step::kReady: return one.is_ready;
    default: return true;
  }
}

inline bool MadeIntroductions::is_dialled_by(const LinksEnd& process, const Contact& contact) const {
  return process.told().our_dial_counts(contact) && std::ranges::any_of(list, [&](const Introduction& one) {
           return one.dialled == &contact && !one.dialler_left && !one.is_ready && one.rests == 0;
         });
}

inline bool MadeIntroductions::step() {
  for (Place at = list.begin(); at != list.end(); ++at)
    if (step(at)) return true;
  return false;
}

inline bool MadeIntroductions::step(Place at) {
  Introduction& one = *at;
  const bool ready_is_due = one.next == Step::kReady && one.is_ready && !one.acceptor_left;
  if ((one.dialler_left || one.acceptor_left) && !ready_is_due) {
    fail(at);
    return true;
  }
  if (!has_due(one)) return false;
  Contact& dialled = *one.dialled;
  LinksEnd &dialler = *one.dialler, &acceptor = *one.acceptor;
  switch (one.next) {
    case Step::kHello: {
      Frame hello = make_frame(kLinks, FrameKind::kHello);
      one.hello = hello;
      dialler.told().say_hello(dialled, hello);
      Introducer::Guest guest;
      if (const std::optional<Refusal> refusal = acceptor.told().meet(hello, guest, one.hello)) {
        list.erase(at);
        dialler.told().on_gone(dialled, *refusal);
        return true;
      }
      one.guest = guest.contact;
      if (is_dialled_by(acceptor, *one.guest)) return false;
      one.next = Step::kAllowed;
      break;
    }
    case Step::kAllowed:
      one.next = Step::kOffer;
      EXPECT_TRUE(dialler.told().on_answer(dialled, one.hello));
      break;
    case Step::kOffer: on_offer(at); break;
    case Step::kAnswer:
      one.next = Step::kReady;
      dialler.told().on_offer(dialled, offer_frame(*one.answer), true);
      break;
    case Step::kReady: {
      Contact& guest = *one.guest;
      list.erase(at);
      acceptor.introducer.sought.erase(&guest);
      for (Introduction& late : list) late.dialler_left |= late.dialled == &guest;
      acceptor.told().on_ready(guest);
      break;
    }
  }
  return true;
}

/// The dialler has proved itself: its introduction takes the place of all others with the contact.
inline void MadeIntroductions::on_offer(Place at) {
  Introduction& one = *at;
  if (is_dialled_by(*one.acceptor, *one.guest)) return fail(at);
  for (bool found = true; found;) {
    const Place late = std::ranges::find_if(list, [&](const Introduction& other) {
      return &other != &one && other.next > Step::kHello &&
             (other.dialled == one.guest || other.guest == one.guest);
    });
    found = late != list.end();
    if (found) fail(late);
  }
  one.next = Step::kAnswer;
  one.acceptor->told().on_offer(*one.guest, offer_frame(*one.offer), false);
}

inline void MadeIntroductions::fail(Place at) {
  const Introduction one = *at;
  list.erase(at);
  const bool dialler_was_allowed = one.next >= Step::kOffer && !one.dialler_left && !one.is_ready;
  const bool acceptor_was_allowed = one.next >= Step::kAnswer && !one.acceptor_left;
  if (dialler_was_allowed) one.dialler->told().on_broken(*one.dialled);
  if (acceptor_was_allowed) one.acceptor->told().on_broken(*one.guest);
  const bool is_dialled =
      std::ranges::any_of(list, [&](const Introduction& other) { return other.dialled == one.dialled; });
  if (is_dialled || !one.dialler->introducer.sought.contains(one.dialled)) return;
  list.push_back({.dialler = one.dialler, .acceptor = one.acceptor, .dialled = one.dialled, .rests = 3});
}

inline void MadeIntroductions::break_off() {
  for (std::size_t left = list.size(); left > 0 && !list.empty(); --left) fail(list.begin());
}

}  // namespace ch3_offload
