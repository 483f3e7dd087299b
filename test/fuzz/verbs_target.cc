// The verbs provider, over the verbs device in software, against processes that hold its address and, as one
// bit of the input says, the job's secret: introductions, queue pairs and slots, right ones and any others,
// in any order. Input: three flags, then steps until it ends.
//
// What is right depends on what the victim said, so a step names a field's right value or gives another. Who
// knows the secret signs what it says, unless a step spoils that.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "fuzz/target.h"
#include "rdma/introduction/frame_stream.h"
#include "rdma/introduction/transcript.h"
#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/verbs_provider.h"
#include "rdma/verbs/wire_up/link_frames.h"

namespace ch3_offload::fuzz {
namespace verbs_target {

/// The monotonic clock of this process while an attack runs; 0: the real one.
std::uint64_t simulated_ns = 0;

}  // namespace verbs_target
}  // namespace ch3_offload::fuzz

/// Takes the C library's place, also for std::chrono (so it must be seen from outside of the program).
/// Time-outs pass when an input says so.
extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using ch3_offload::fuzz::verbs_target::simulated_ns;
  if (clock != CLOCK_MONOTONIC || simulated_ns == 0)
    return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
  time->tv_sec = static_cast<time_t>(simulated_ns / 1'000'000'000);
  time->tv_nsec = static_cast<long>(simulated_ns % 1'000'000'000);
  return 0;
}

namespace ch3_offload::fuzz {
namespace verbs_target {

constexpr PeerId kVictim{1};
constexpr std::uint32_t kPeerLimit = 4;
constexpr std::size_t kSlotBytes = 256;
constexpr std::size_t kChannels = 4;
constexpr std::size_t kMemoryBytes = 4096;
constexpr std::uint32_t kReceiveDepth = 64;
constexpr std::uint32_t kSends = 128;
constexpr std::uint64_t kMillisecondNs = 1'000'000;
/// No honest peer counts that far. The victim's own number after this one may be out of range.
constexpr std::uint32_t kManyLinks = 1u << 30;

enum class Step : std::uint8_t {
  kDial,       ///< c: a connection of the attacker's; the one before of that number ends
  kAccept,     ///< c: one that the victim made
  kHello,      ///< c, sender, flaw, last link: 0, or 1 and a value
  kOffer,      ///< c, link, queue pair, received, limit: each 0, or 1 and a value; flip: position and value
  kReady,      ///< c
  kFrame,      ///< c, kind, u32: its first field
  kSpoil,      ///< c, what: of the next frame
  kRaw,        ///< c, length, the bytes
  kClose,      ///< c, orderly or not
  kQueuePair,  ///< peer: a new one of the attacker's
  kBind,       ///< peer: connects it with what the victim said last
  kReceives,   ///< peer, count
  kSend,       ///< peer, limit (u32), kind, flags, length (u16)
  kWrite,      ///< peer, key, length (u16), immediate (u32)
  kBreak,      ///< peer
  kLose,       ///< count, how
  kPoll,       ///< armed or not, budget
  kTime,       ///< milliseconds
  kProbe,      ///< peers that the victim waits for, as bits
  kVictimConnects,  ///< peer, flaw of the address
  kVictimSends,     ///< peer, length (u16)
  kVictimWrites,    ///< peer, key, length (u16)
  kVictimEnds,      ///< peer
  kRegister,        ///< The memory that the victim lets others write to, or no longer.
  kCount
};

enum class Flaw : std::uint8_t {
  kNone,
  kDeadPort,  ///< Nobody listens there.
  kTwoHosts,  ///< At the second one nobody listens.
  kFabric,
  kAddress,
  kSlots,
  kInstance,
  kEndless,
  kSenderInstance,
  kSecret,
  kReceiver,
  kReceiverInstance,
  kLane,
  kVersion,
  kMagic,
  kOverheard,  ///< Said by a process that knows the secret. Who repeats it need not know it.
  kCount
};

enum class Spoil : std::uint8_t {
  kNothing,
  kProof,
  kSpeaker,  ///< Signed as the other side.
  kReflect,  ///< What the victim said last, instead.
  kCount
};

JobSecret secret(bool right = true) {
  JobSecret secret;
  secret.fill(std::byte{0x5A});
  if (!right) secret[15] ^= std::byte{1};
  return secret;
}

/// A device's end of the attacker's.
struct Device {
  Device() {
    int count = 0;
    ibv_device** const devices = ibv_get_device_list(&count);
    context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    domain = ibv_alloc_pd(context);
    queue = ibv_create_cq(context, 8192, nullptr, nullptr, 0);
    constexpr int kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    region = ibv_reg_mr(domain, memory.data(), memory.size(), kRights);
    require(context != nullptr && queue != nullptr && region != nullptr, "there is a device");
    require(ibv_query_gid(context, 1, 1, &gid) == 0, "there is a GID");
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    ibv_dereg_mr(region);
    ibv_destroy_cq(queue);
    ibv_dealloc_pd(domain);
    ibv_close_device(context);
  }

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_cq* queue = nullptr;
  ibv_mr* region = nullptr;
  ibv_gid gid{};
  alignas(64)
      std::array<std::byte, kMemoryBytes> memory{};  ///< Sources, receives, and what the victim writes to.
};

class Attack final : public Sink {
 public:
  explicit Attack(std::span<const std::byte> bytes) : input_(bytes) {
    simulated_ns = 1'000'000 * kMillisecondNs;
    knows_secret_ = input_.flag();
    echoes_ = input_.flag();
    few_links_ = input_.flag();
    fake_verbs::Config fake{.pump_interval = {}};
    fake.tamper = [this](fake_verbs::Config::Transfer& transfer, std::span<std::byte> message) {
      on_transfer(transfer, message);
    };
    fake_verbs::reset(std::move(fake));
    VerbsConfig config;
    config.self = kVictim;
    config.job_secret = secret();
    config.peer_limit = kPeerLimit;
    config.rail = {.slot_bytes = kSlotBytes,
                   .slots_per_slab = few_links_ ? 16u : 64u,
                   .most_receive_slots = 128,
                   .most_queue_pairs = few_links_ ? 2u : 4u};
    config.most_send_slots = few_links_ ? 16 : 64;
    config.peer_timeout_ms = 1000;
    config.log = [](void*, LogScope, const char* line) { require(line[0] != '\0', "a line says something"); };
    Result<std::unique_ptr<VerbsProvider>> made = VerbsProvider::create(config);
    require(made.ok(), "a provider can be made");
    victim_ = std::move(made.value());
    victims_address_ = *VerbsAddress::parse(victim_->local_address());
    device_ = std::make_unique<Device>();
    std::uint16_t port = 0;
    Result<FileDescriptor> listener = listen_for_streams(victims_address_.hosts[0], port);
    require(listener.ok(), "there are descriptors");
    listener_ = std::move(listener.value());
    own_address_ = victims_address_;
    own_address_.port = port;
    constexpr std::uint32_t kSlots[] = {VerbsAddress::kLeastSlotBytes, kSlotBytes,
                                        VerbsAddress::kMostSlotBytes};
    own_address_.slot_bytes = kSlots[bytes.size() % std::size(kSlots)];
    require(victim_->register_memory(source_.data(), source_.size(), Access::kRead, source_region_) ==
                Status::kOk,
            "memory can be registered");
  }
  Attack(const Attack&) = delete;
  Attack& operator=(const Attack&) = delete;

  void run() {
    for (int steps = 0; !input_.empty() && steps < 200; ++steps)
      take(Step{input_.below(static_cast<std::uint8_t>(Step::kCount))});
    end();
  }

  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    require(!message.empty() && message.size() <= victim_->capabilities().max_slot_bytes,
            "a message has a possible length");
    touch(message);
    hear(peer);
    if (echoes_) send(peer, message.size());
    return message.size() % 3 == 0 ? Delivery::kHeld : Delivery::kTaken;
  }
  void on_write_arrived(PeerId peer, Immediate, std::size_t length_bytes) noexcept override {
    require(length_bytes <= kMemoryBytes, "a write has a possible length");
    hear(peer);
  }
  bool awaits(PeerId peer) const noexcept override {
    require(down_.count(peer) == 0, "nobody waits for who is down");
    return (awaited_ >> index_of(peer) & 1) != 0;
  }
  void on_write_done(PeerId peer, WorkId work, Status) noexcept override {
    require(down_.count(peer) == 0, "nothing comes from who is down");
    require(writes_.erase(static_cast<std::uint64_t>(work)) == 1, "a write is done once");
    if (echoes_) send(peer, 1);
  }
  void on_peer_down(PeerId peer, Status reason) noexcept override {
    require(index_of(peer) < kPeerLimit && peer != kVictim, "peers are below the limit");
    require(reason == Status::kPeerFailed || reason == Status::kProtocol, "an end has a reason");
    require(unknown_.count(peer) == 0, "nothing comes from who was given up before it was known");
    require(down_.insert(peer).second, "a peer goes down once");
  }

 private:
  /// One connection, for an introduction.
  struct Channel {
    FileDescriptor socket;
    bool dialled = false;    ///< By the attacker.
    std::uint32_t peer = 0;  ///< Whom the attacker plays here.
    Transcript transcript{secret()};
    /// All that the attacker said was signed and its turn: what the victim says has proofs that hold.
    bool in_order = false;
    std::uint32_t sent = 0;   ///< Frames.
    std::uint32_t heard = 0;  ///< Frames.
    bool proved = false;      ///< The attacker's Hello was right.
    bool overheard = false;   ///< The same, but the attacker cannot go on.
    bool offered = false;     ///< Its offer followed.
    Spoil spoil{};            ///< The next frame.
    Frame last;               ///< The victim's.
    std::array<std::byte, sizeof(Frame)> incoming{};
    std::size_t incoming_bytes = 0;
    /// The attacker speaks after the victim, or first if it has dialled.
    bool is_due() const { return sent + (dialled ? 0 : 1) == heard; }
    Speaker self() const { return dialled ? Speaker::kDialler : Speaker::kAcceptor; }
    Speaker victim() const { return dialled ? Speaker::kAcceptor : Speaker::kDialler; }
  };
  /// What the attacker has of a link to the victim, as a peer.
  struct Link {
    ibv_qp* queue_pair = nullptr;
    std::uint32_t number = 0;   ///< Of the current queue pair's; numbers are used again.
    OfferBody remote{};         ///< The victim's last.
    std::uint64_t arrived = 0;  ///< Items of the victim.
    std::uint64_t given = 4;    ///< Credit that the victim has.
    std::uint64_t told = 4;     ///< Credit that the victim gave.
    std::uint64_t heard = 0;    ///< What the victim delivered of it.
    std::uint64_t sent = 0;     ///< Items.
    bool introduced = false;
    bool parked = false;  ///< The victim has said that it sends nothing more on this queue pair.
  };

  void take(Step step);
  void end();
  void demand_link(PeerId peer);
  void hear(PeerId peer);
  Link& link() { return links_[input_.below(kPeerLimit)]; }
  Channel& channel() { return channels_[input_.below(kChannels)]; }
  std::uint64_t or_value(std::uint64_t right) { return input_.flag() ? input_.u64() : right; }
  std::string address(Flaw flaw) const;

  void poll(bool armed, std::size_t budget) {
    if (armed) static_cast<void>(victim_->arm());
    victim_->poll(*this, budget);
    victim_->disarm();
    for (Channel& channel : channels_) drain(channel);
    drain_completions();
  }
  void open(Channel& channel, FileDescriptor socket, bool dialled);
  void close(Channel& channel, bool orderly);
  void drain(Channel& channel);
  void on_frame(Channel& channel, const Frame& frame);
  void send_bytes(Channel& channel, std::span<const std::byte> bytes) {
    if (channel.socket.valid() && !bytes.empty())
      static_cast<void>(
          ::send(channel.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  void say(Channel& channel, Frame frame);
  void hello(Channel& channel, std::uint32_t sender, Flaw flaw);
  void offer(Channel& channel);
  std::uint32_t count_on(std::uint32_t number) {
    counts_far_ |= number >= kManyLinks;
    return number;
  }

  void make_queue_pair(Link& link);
  void bind(Link& link);
  void post_receives(Link& link, std::uint32_t count);
  void post(Link& link, ibv_send_wr request, std::size_t length_bytes);
  void send_slot(Link& link);
  void write(Link& link);
  void drain_completions();
  void on_transfer(const fake_verbs::Config::Transfer& transfer, std::span<const std::byte> message);

  void send(PeerId peer, std::size_t length_bytes);
  void write_from_victim(PeerId peer);
  void toggle_region();

  Input input_;
  bool knows_secret_ = false;
  bool echoes_ = false;      ///< The victim answers from callbacks.
  bool few_links_ = false;   ///< The victim has fewer queue pairs than peers, so it parks, and few slots.
  bool counts_far_ = false;  ///< The attacker has named numbers of links from kManyLinks on.
  std::unique_ptr<VerbsProvider> victim_;
  std::array<Endpoint*, kPeerLimit> endpoints_{};  ///< The victim's. nullptr: it has not connected.
  VerbsAddress victims_address_;
  VerbsAddress own_address_;
  std::unique_ptr<Device> device_;
  FileDescriptor listener_;
  std::array<Channel, kChannels> channels_;
  std::array<Link, kPeerLimit> links_;
  bool frames_lost_ = false;  ///< The victim may have given credit that nobody heard of.
  std::uint64_t slots_seen_ = 0;
  std::set<std::uint64_t> writes_;  ///< Of the victim, under way.
  std::uint64_t next_write_ = 0;
  std::array<std::byte, kMemoryBytes> source_{};
  std::array<std::byte, kMemoryBytes> target_{};
  MemoryRegion source_region_;
  MemoryRegion target_region_;
  std::set<PeerId> engaged_;  ///< Somebody spoke to them.
  std::set<PeerId> ended_;    ///< By the victim.
  std::set<PeerId> unknown_;  ///< The same, before there was anything to end.
  std::set<PeerId> down_;
  std::set<Nonce> nonces_;       ///< The victim's.
  std::uint8_t awaited_ = 0xFF;  ///< Peers that the victim waits for, as bits.
};

void Attack::hear(PeerId peer) {
  require(index_of(peer) < kPeerLimit && peer != kVictim, "peers are below the limit");
  require(down_.count(peer) == 0, "nothing comes from who is down");
  require(unknown_.count(peer) == 0, "nothing comes from who was given up before it was known");
  engaged_.insert(peer);
  Link& link = links_[index_of(peer)];
  require(knows_secret_ && link.introduced, "who is heard has introduced itself");
  ++link.heard;
  for (Channel& channel : channels_) drain(channel);
  // Where all that the victim said has arrived, the attacker knows of all credit. Nobody counts the slots by
  // which the victim parks and says goodbye.
  const VerbsFigures figures = victim_->figures();
  if (frames_lost_ || few_links_ || ended_.count(peer) != 0 || figures.links.lost != 0 ||
      figures.links.items_sent_again != 0 ||
      figures.traffic.messages_sent + figures.traffic.credit_messages != slots_seen_)
    return;
  require(link.heard <= link.told, "nothing is delivered without credit");
}

std::string Attack::address(Flaw flaw) const {
  VerbsAddress address = own_address_;
  switch (flaw) {
    case Flaw::kDeadPort: address.port = 1; break;
    case Flaw::kTwoHosts: address.hosts.push_back("127.0.0.2"); break;
    case Flaw::kFabric: address.ethernet = false; break;
    case Flaw::kAddress: return "verbs:4/r/localhost/1/";
    case Flaw::kSlots: --address.slot_bytes; break;
    case Flaw::kInstance: address.instance ^= 1; break;
    default: break;
  }
  return address.to_string();
}

void Attack::open(Channel& channel, FileDescriptor socket, bool dialled) {
  close(channel, false);
  channel = {};
  channel.socket = std::move(socket);
  channel.dialled = dialled;
  channel.transcript = Transcript(secret(knows_secret_));
  channel.in_order = knows_secret_;
  // Ends with a reset: no port stays in use.
  const linger at_once{1, 0};
  static_cast<void>(::setsockopt(channel.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
  const int no_delay = 1;  // Else a frame waits for the real clock.
  static_cast<void>(::setsockopt(channel.socket.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay));
}

void Attack::close(Channel& channel, bool orderly) {
  if (!channel.socket.valid()) return;
  drain(channel);
  frames_lost_ |= channel.proved;
  if (orderly) {
    static_cast<void>(::shutdown(channel.socket.get(), SHUT_WR));
    poll(true, 64);
  }
  channel.socket.reset();
}

/// Reads what the victim said.
void Attack::drain(Channel& channel) {
  while (channel.socket.valid()) {
    const ssize_t got = ::recv(channel.socket.get(), channel.incoming.data() + channel.incoming_bytes,
                               channel.incoming.size() - channel.incoming_bytes, MSG_DONTWAIT);
    if (got <= 0) return;
    channel.incoming_bytes += static_cast<std::size_t>(got);
    if (channel.incoming_bytes < channel.incoming.size()) continue;
    channel.incoming_bytes = 0;
    Frame frame;
    const bool valid = check_frame(channel.incoming, kLinks, frame) == FrameCheck::kValid;
    require(valid || (counts_far_ && frame.kind == FrameKind::kOffer), "the victim's frames are valid");
    on_frame(channel, frame);
  }
}

void Attack::on_frame(Channel& channel, const Frame& frame) {
  ++channel.heard;
  channel.last = frame;
  if (frame.kind == FrameKind::kRefuse) return;  // It needs no proof.
  if (channel.in_order)
    require(channel.transcript.verify(channel.victim(), frame), "the victim's frames have proofs");
  switch (frame.kind) {
    case FrameKind::kHello:
      require(!channel.dialled || channel.proved || channel.overheard,
              "who does not know the secret is told nothing");
      require(frame.as<HelloBody>().sender == index_of(kVictim) &&
                  frame.as<HelloBody>().sender_instance == victims_address_.instance,
              "the victim says who it is");
      require(nonces_.insert(frame.nonce).second, "a nonce is used once");
      if (!channel.dialled) channel.peer = frame.as<HelloBody>().receiver;
      return;
    case FrameKind::kOffer: {
      require(channel.dialled ? channel.offered : channel.proved, "offers are for who was introduced");
      Link& link = links_[channel.peer];
      link.remote = frame.as<OfferBody>();
      link.told = std::max(link.told, frame.as<OfferBody>().limit);
      return;
    }
    default: require(!channel.dialled && channel.offered, "the dialler is ready once it has an offer");
  }
}

void Attack::say(Channel& channel, Frame frame) {
  if (!channel.socket.valid()) return;
  drain(channel);
  const Spoil spoil = std::exchange(channel.spoil, Spoil::kNothing);
  channel.in_order &= channel.is_due() && spoil == Spoil::kNothing;
  ++channel.sent;
  channel.transcript.sign(spoil == Spoil::kSpeaker ? channel.victim() : channel.self(), frame);
  if (spoil == Spoil::kProof) frame.proof[0] ^= std::byte{1};
  if (spoil == Spoil::kReflect) frame = channel.last;
  if (channel.in_order && channel.proved && frame.kind == FrameKind::kOffer) {
    channel.offered = true;
    links_[channel.peer].introduced = true;
  }
  send_bytes(channel, std::as_bytes(std::span(&frame, 1)));
}

void Attack::hello(Channel& channel, std::uint32_t sender, Flaw flaw) {
  if (!channel.socket.valid()) return;
  Frame frame = make_frame(kLinks, FrameKind::kHello);
  HelloBody& body = frame.as<HelloBody>();
  body.sender = sender;
  body.receiver = index_of(kVictim) ^ (flaw == Flaw::kReceiver);
  body.sender_instance = own_address_.instance ^ (flaw == Flaw::kSenderInstance);
  body.receiver_instance = victims_address_.instance ^ (flaw == Flaw::kReceiverInstance);
  body.lane = flaw == Flaw::kLane;
  body.own = sender;
  body.known_as = index_of(kVictim);
  body.last_link = input_.flag() ? count_on(input_.u32()) : links_[sender % kPeerLimit].remote.link;
  const std::string text = address(flaw);
  std::memcpy(body.address.data(), text.data(), std::min(text.size(), body.address.size() - 1));
  if (flaw == Flaw::kEndless) body.address.fill('1');
  if (flaw == Flaw::kVersion) ++frame.version;
  if (flaw == Flaw::kMagic) ++frame.magic;
  if (flaw == Flaw::kSecret || flaw == Flaw::kOverheard) {
    channel.transcript = Transcript(secret(flaw == Flaw::kOverheard));
    channel.in_order = false;
    channel.overheard |= flaw == Flaw::kOverheard;
  }
  drain(channel);
  // The victim looks at an address only if it was dialled.
  const bool is_right = flaw < Flaw::kFabric || (flaw < Flaw::kEndless && !channel.dialled);
  if (channel.dialled && sender < kPeerLimit) channel.peer = sender;
  const bool is_first = channel.sent == 0 && channel.is_due();
  say(channel, frame);
  channel.proved |= is_first && is_right && channel.in_order && sender < kPeerLimit;
  if (flaw == Flaw::kOverheard) channel.transcript = Transcript(secret(knows_secret_));
}

void Attack::offer(Channel& channel) {
  Frame frame = make_frame(kLinks, FrameKind::kOffer);
  OfferBody& body = frame.as<OfferBody>();
  drain(channel);
  Link& link = links_[channel.peer % kPeerLimit];
  const std::uint8_t ahead = input_.u8();  // 0: the victim's; 1: the next.
  body.link = ahead == 0xFF ? input_.u32() : link.remote.link + ahead;
  body.queue_pair = static_cast<std::uint32_t>(or_value(link.number));
  body.mtu = IBV_MTU_1024;
  std::memcpy(body.gid.data(), device_->gid.raw, body.gid.size());
  body.received = or_value(link.arrived);
  body.limit = or_value(body.received + 64);
  const std::uint8_t position = input_.u8();
  frame.body[position % sizeof body] ^= std::byte{input_.u8()};
  count_on(body.link);
  link.given = std::max(link.given, body.limit);
  say(channel, frame);
}

void Attack::make_queue_pair(Link& link) {
  if (link.queue_pair != nullptr) ibv_destroy_qp(link.queue_pair);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = device_->queue;
  init.cap = {.max_send_wr = kSends,
              .max_recv_wr = kReceiveDepth,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  link.queue_pair = ibv_create_qp(device_->domain, &init);
  require(link.queue_pair != nullptr, "there are queue pairs");
  link.number = link.queue_pair->qp_num;
  link.parked = false;
  ibv_qp_attr values{};
  values.qp_state = IBV_QPS_INIT;
  values.port_num = 1;
  values.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  require(ibv_modify_qp(link.queue_pair, &values,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
          "a queue pair can be prepared");
  post_receives(link, kReceiveDepth);
}

void Attack::bind(Link& link) {
  if (link.queue_pair == nullptr) return;
  ibv_qp_attr values{};
  values.qp_state = IBV_QPS_RTR;
  values.path_mtu = IBV_MTU_1024;
  values.dest_qp_num = link.remote.queue_pair;
  values.rq_psn = link.remote.packet_sequence;
  values.max_dest_rd_atomic = 1;
  values.min_rnr_timer = 12;
  values.ah_attr.port_num = 1;
  values.ah_attr.is_global = 1;
  values.ah_attr.grh.sgid_index = 1;
  values.ah_attr.grh.hop_limit = 64;
  values.ah_attr.grh.dgid = device_->gid;
  if (ibv_modify_qp(link.queue_pair, &values,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return;
  values = {};
  values.qp_state = IBV_QPS_RTS;
  values.timeout = 14;
  values.retry_cnt = 7;
  values.rnr_retry = 7;
  values.max_rd_atomic = 1;
  static_cast<void>(ibv_modify_qp(link.queue_pair, &values,
                                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

void Attack::post_receives(Link& link, std::uint32_t count) {
  if (link.queue_pair == nullptr) return;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(device_->memory.data()), kSlotBytes, device_->region->lkey};
  ibv_recv_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  while (count-- > 0 && ibv_post_recv(link.queue_pair, &request, &refused) == 0) {
  }
}

/// Of the second half of the memory, which no receive changes.
void Attack::post(Link& link, ibv_send_wr request, std::size_t length_bytes) {
  if (link.queue_pair == nullptr) return;
  ibv_sge piece{reinterpret_cast<std::uintptr_t>(device_->memory.data() + kMemoryBytes / 2),
                static_cast<std::uint32_t>(length_bytes), device_->region->lkey};
  request.sg_list = &piece;
  request.num_sge = length_bytes > 0 ? 1 : 0;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(link.queue_pair, &request, &refused) == 0) ++link.sent;
}

void Attack::send_slot(Link& link) {
  SlotHeader header;
  header.limit = input_.u32();
  header.kind = input_.u8();
  header.flags = input_.u8();
  const std::size_t length = input_.u16() % (2 * kSlotBytes);
  std::memcpy(device_->memory.data() + kMemoryBytes / 2, &header, sizeof header);
  // As a whole number where it is meant as one.
  link.given = header.limit < 0x7FFF'FFFF ? std::max<std::uint64_t>(link.given, header.limit) : UINT64_MAX;
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  post(link, request, length);
}

void Attack::write(Link& link) {
  const bool known = input_.flag();
  const std::size_t length = input_.u16() % (kMemoryBytes / 2);
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(input_.u32());
  request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(target_.data());
  request.wr.rdma.rkey = static_cast<std::uint32_t>((known ? target_region_ : source_region_).remote_key);
  if (!known) request.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(source_.data());
  post(link, request, length);
}

void Attack::drain_completions() {
  std::array<ibv_wc, 64> completions;
  while (ibv_poll_cq(device_->queue, static_cast<int>(completions.size()), completions.data()) > 0) {
  }
}

/// What reaches a queue pair of the attacker's. Called under the device's lock.
void Attack::on_transfer(const fake_verbs::Config::Transfer& transfer, std::span<const std::byte> message) {
  for (std::uint32_t i = 0; i < kPeerLimit; ++i) {
    Link& link = links_[i];
    const PeerId peer{i};
    if (link.queue_pair == nullptr || link.number != transfer.destination) continue;
    if (transfer.opcode == IBV_WR_RDMA_WRITE) return;
    ++link.arrived;
    require(!link.parked, "who has parked sends nothing more");
    SlotHeader header;
    const bool is_slot = transfer.opcode == IBV_WR_SEND;
    if (is_slot) {
      require(message.size() >= sizeof header &&
                  message.size() <= std::min<std::size_t>(kSlotBytes, own_address_.slot_bytes),
              "a slot has a possible length");
      std::memcpy(&header, message.data(), sizeof header);
    }
    // A link's last item needs no credit. Over the next link it is one of credit.
    const bool may_go_further = is_slot && header.kind != SlotHeader::kMessage;
    if (victim_->figures().links.lost == 0)
      require(link.arrived <= link.given || (may_go_further && link.arrived - 1 <= link.given),
              "the victim sends no more than it has credit for");
    if (!is_slot) return;
    link.parked = header.kind == SlotHeader::kPark;
    if (header.kind == SlotHeader::kMessage) {
      require(message.size() > sizeof header, "a message is not empty");
    } else {
      require(message.size() == sizeof header, "a notice is empty");
      require(header.kind == SlotHeader::kCreditOnly || header.kind == SlotHeader::kPark ||
                  (header.kind == SlotHeader::kBye && ended_.count(peer) != 0),
              "a slot is one of four kinds, and goodbye is said at the end");
    }
    slots_seen_ += header.kind == SlotHeader::kMessage || header.kind == SlotHeader::kCreditOnly;
    require(header.reserved == 0 && (header.flags & ~SlotHeader::kWantsCredit) == 0, "the rest is 0");
    link.told = std::max<std::uint64_t>(link.told, header.limit);
    return;
  }
}

void Attack::send(PeerId peer, std::size_t length_bytes) {
  Endpoint* const endpoint = endpoints_[index_of(peer)];
  if (endpoint == nullptr) return;
  std::span<std::byte> slot;
  length_bytes = std::min(length_bytes, victim_->max_slot_bytes(*endpoint));
  const Status status = victim_->reserve(*endpoint, length_bytes, slot);
  if (down_.count(peer) != 0) require(status == Status::kPeerFailed, "who is down takes nothing");
  if (status != Status::kOk) return;
  require(slot.size() == length_bytes, "a slot has the length that was asked for");
  std::memset(slot.data(), 0x56, slot.size());
  victim_->commit(*endpoint, length_bytes);
}

void Attack::write_from_victim(PeerId peer) {
  const bool known = input_.flag();
  const std::size_t length = input_.u16() % kMemoryBytes;
  Endpoint* const endpoint = endpoints_[index_of(peer)];
  if (endpoint == nullptr) return;
  const std::uint64_t work = next_write_++;
  writes_.insert(work);
  const RemoteMemory to{reinterpret_cast<std::uintptr_t>(device_->memory.data()),
                        RemoteKey{device_->region->rkey ^ (known ? 0u : 1u)}};
  // Also done before it returns: then it is no longer there.
  if (victim_->write(*endpoint, source_.data(), length, source_region_, to, Immediate{7}, WorkId{work}) !=
      Status::kOk)
    require(writes_.erase(work) == 1, "a write that was not taken is not done");
}

void Attack::toggle_region() {
  if (target_region_.address != nullptr) return victim_->deregister_memory(target_region_);
  require(
      victim_->register_memory(target_.data(), target_.size(), Access::kWrite, target_region_) == Status::kOk,
      "memory can be registered");
}

/// Whatever the victim has of the peer: it is to need a link now.
void Attack::demand_link(PeerId peer) {
  const std::string address = victim_->address_of(peer);
  if (address.empty()) return;
  if (Result<Endpoint*> connected = victim_->connect(peer, address); connected.ok())
    endpoints_[index_of(peer)] = connected.value();
  send(peer, 1);
}

/// The attacker dies. Dials tell, and probes of the links that there are.
void Attack::end() {
  for (Channel& channel : channels_) close(channel, false);
  listener_.reset();
  for (Link& link : links_)
    if (link.queue_pair != nullptr) ibv_destroy_qp(std::exchange(link.queue_pair, nullptr));
  awaited_ = 0xFF;
  const auto is_over = [this] {
    const VerbsFigures now = victim_->figures();
    return std::ranges::includes(down_, engaged_) && now.queue_pairs == 0 && now.send_slots_taken == 0 &&
           now.waiting_messages == 0 && now.descriptors == victims_address_.hosts.size();
  };
  for (int i = 0; i < 100 && !is_over(); ++i) {
    simulated_ns += 50 * kMillisecondNs;
    victim_->probe_soon();
    if (i % 10 == 0)
      for (const PeerId peer : engaged_) demand_link(peer);
    poll(true, 64);
  }
  for (const PeerId peer : engaged_) require(down_.count(peer) == 1, "who cannot be reached is down");
  require(writes_.empty(), "every write is done");
  if (target_region_.address != nullptr) victim_->deregister_memory(target_region_);
  victim_->deregister_memory(source_region_);
  const VerbsFigures figures = victim_->figures();
  require(figures.queue_pairs == 0 && figures.registrations == 0 && figures.send_slots_taken == 0 &&
              figures.waiting_messages == 0,
          "nothing is kept for who is down");
  require(figures.descriptors == victims_address_.hosts.size(), "no connection is left");
  victim_->abandon();
  victim_.reset();
  device_.reset();
  require(fake_verbs::leaks().none(), "nothing of the device is left");
  require(fake_verbs::counters().overflows == 0, "no completion is lost");
  for (const std::string& violation : fake_verbs::violations()) require_none(violation);
  fake_verbs::reset({.pump_interval = {}});  // It does not call this object any more.
  simulated_ns = 0;
}

void Attack::take(Step step) {
  switch (step) {
    case Step::kDial: {
      Channel& of = channel();
      const std::optional<SocketAddress> to =
          socket_address(victims_address_.hosts[0], victims_address_.port);
      FileDescriptor socket(::socket(to->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (socket.valid() && ::connect(socket.get(), to->get(), to->length) == 0)
        open(of, std::move(socket), true);
      return;
    }
    case Step::kAccept: {
      Channel& of = channel();
      int error_number = 0;
      FileDescriptor socket = accept_stream(listener_, error_number);
      if (!socket.valid()) return;
      open(of, std::move(socket), false);
      return drain(of);
    }
    case Step::kHello: {
      Channel& of = channel();
      const std::uint32_t sender = input_.below(kPeerLimit + 1);
      return hello(of, sender, Flaw{input_.below(static_cast<std::uint8_t>(Flaw::kCount))});
    }
    case Step::kOffer: return offer(channel());
    case Step::kReady: return say(channel(), make_frame(kLinks, FrameKind::kReady));
    case Step::kFrame: {
      Channel& to = channel();
      Frame frame = make_frame(kLinks, FrameKind{input_.u8()});
      const std::uint32_t field = input_.u32();
      std::memcpy(frame.body.data(), &field, sizeof field);
      return say(to, frame);
    }
    case Step::kSpoil: {
      Channel& of = channel();
      of.spoil = Spoil{input_.below(static_cast<std::uint8_t>(Spoil::kCount))};
      return;
    }
    case Step::kRaw: {
      Channel& to = channel();
      const auto bytes = input_.bytes(input_.u8());
      to.in_order &= bytes.empty();
      return send_bytes(to, bytes);
    }
    case Step::kClose: {
      Channel& of = channel();
      return close(of, input_.flag());
    }
    case Step::kQueuePair: return make_queue_pair(link());
    case Step::kBind: return bind(link());
    case Step::kReceives: {
      Link& of = link();
      return post_receives(of, input_.below(kReceiveDepth + 1));
    }
    case Step::kSend: return send_slot(link());
    case Step::kWrite: return write(link());
    case Step::kBreak: {
      ibv_qp_attr values{};
      values.qp_state = IBV_QPS_ERR;
      if (const Link& of = link(); of.queue_pair != nullptr)
        static_cast<void>(ibv_modify_qp(of.queue_pair, &values, IBV_QP_STATE));
      return;
    }
    case Step::kLose: {
      const unsigned count = input_.below(4);
      return fake_verbs::drop_next(count, fake_verbs::Loss{input_.below(3)});
    }
    case Step::kPoll: {
      const bool armed = input_.flag();
      return poll(armed, 1 + input_.below(64));
    }
    case Step::kTime: simulated_ns += input_.u8() * kMillisecondNs; return;
    case Step::kProbe: awaited_ = input_.u8(); return victim_->probe_soon();
    case Step::kVictimConnects: {
      const PeerId peer{input_.below(kPeerLimit + 1)};
      const Flaw flaw{input_.below(static_cast<std::uint8_t>(Flaw::kEndless))};
      Result<Endpoint*> connected = victim_->connect(peer, address(flaw));
      if (!connected.ok()) return;
      require(peer != kVictim && index_of(peer) < kPeerLimit, "peers are below the limit");
      Endpoint*& endpoint = endpoints_[index_of(peer)];
      require(endpoint == nullptr || endpoint == connected.value(), "a peer has one endpoint");
      endpoint = connected.value();
      engaged_.insert(peer);
      return;
    }
    case Step::kVictimSends: {
      const PeerId peer{input_.below(kPeerLimit)};
      const std::size_t length = input_.u16();
      Endpoint* const endpoint = endpoints_[index_of(peer)];
      return endpoint == nullptr ? void() : send(peer, 1 + length % victim_->max_slot_bytes(*endpoint));
    }
    case Step::kVictimWrites: return write_from_victim(PeerId{input_.below(kPeerLimit)});
    case Step::kVictimEnds: {
      const PeerId peer{input_.below(kPeerLimit)};
      if (peer == kVictim) return;
      ended_.insert(peer);
      if (victim_->end(peer))
        engaged_.insert(peer);
      else if (down_.count(peer) == 0)
        unknown_.insert(peer);
      return;
    }
    default: return toggle_region();
  }
}

std::vector<Bytes> seeds() {
  struct Steps {
    explicit Steps(bool knows_secret = true, bool echoes = false, bool few_links = false) {
      seed.u8(knows_secret).u8(echoes).u8(few_links);
    }
    Seed seed;
    Steps& step(Step name, std::initializer_list<std::uint8_t> arguments) {
      seed.u8(static_cast<std::uint8_t>(name));
      for (const std::uint8_t argument : arguments) seed.u8(argument);
      return *this;
    }
    Steps& poll() { return step(Step::kPoll, {1, 63}); }
    Steps& polls(int count) {
      while (count-- > 0) poll();
      return *this;
    }
    Steps& hello(std::uint8_t c, std::uint8_t peer, Flaw flaw = Flaw::kNone) {
      return step(Step::kHello, {c, peer, static_cast<std::uint8_t>(flaw), 0});
    }
    Steps& offer(std::uint8_t c, std::uint8_t ahead) { return step(Step::kOffer, {c, ahead, 0, 0, 0, 0, 0}); }
    Steps& refuse(std::uint8_t c, std::uint8_t reason) {
      return step(Step::kFrame, {c, static_cast<std::uint8_t>(FrameKind::kRefuse), reason, 0, 0, 0});
    }
    Steps& spoil(std::uint8_t c, Spoil what) {
      return step(Step::kSpoil, {c, static_cast<std::uint8_t>(what)});
    }
    Steps& send(std::uint8_t peer, std::uint8_t limit, std::uint8_t length,
                std::uint8_t kind = SlotHeader::kMessage) {
      return step(Step::kSend, {peer, limit, 0, 0, 0, kind, 0, length, 0});
    }
    Steps& notice(std::uint8_t peer, std::uint8_t kind) { return send(peer, 60, sizeof(SlotHeader), kind); }
    /// A link by the attacker's dial.
    Steps& up(std::uint8_t c, std::uint8_t peer) {
      step(Step::kDial, {c}).hello(c, peer).poll();
      step(Step::kQueuePair, {peer}).offer(c, 1).polls(2);
      return step(Step::kBind, {peer}).step(Step::kReady, {c}).poll();
    }
    /// The attacker's Hello to a dial of the victim's, up to the victim's offer.
    Steps& answer(std::uint8_t c, std::uint8_t peer, Flaw flaw = Flaw::kNone) {
      return poll().step(Step::kAccept, {c}).poll().hello(c, peer, flaw).polls(2);
    }
    /// A link by the victim's dial.
    Steps& anew(std::uint8_t c, std::uint8_t peer) {
      answer(c, peer);
      return step(Step::kQueuePair, {peer}).step(Step::kBind, {peer}).offer(c, 0).polls(2);
    }
    Steps& victims(std::uint8_t c, std::uint8_t peer, Flaw flaw = Flaw::kNone) {
      return step(Step::kVictimConnects, {peer, static_cast<std::uint8_t>(flaw)}).anew(c, peer);
    }
    Steps& traffic(std::uint8_t peer) {
      for (const std::uint8_t length : {100, 200, 9}) send(peer, 60, length);
      step(Step::kRegister, {}).step(Step::kWrite, {peer, 1, 0xFF, 3, 1, 2, 3, 4}).poll();
      for (int i = 0; i < 6; ++i) step(Step::kVictimSends, {peer, 100, 0}).send(peer, 60, 20).poll();
      return step(Step::kVictimWrites, {peer, 1, 0xFF, 7}).polls(2);
    }
    Steps& wait(int count) {
      while (count-- > 0) step(Step::kTime, {60}).poll();
      return *this;
    }
  };
  std::vector<Bytes> all;
  const auto add = [&all](const Steps& steps) { all.push_back(steps.seed.done()); };
  add(Steps().up(0, 2).step(Step::kVictimConnects, {2, 0}).traffic(2).notice(2, SlotHeader::kBye).poll());
  add(Steps(true, true).victims(0, 0).traffic(0).notice(0, SlotHeader::kBye).poll());
  // With slots of each length: that of the input chooses.
  for (int padding = 0; padding < 3; ++padding) {
    Steps echoed(true, true);
    echoed.up(0, 2).step(Step::kVictimConnects, {2, 0}).traffic(2);
    for (int i = 0; i < padding; ++i) echoed.step(Step::kRegister, {});
    add(echoed);
  }
  add(Steps(true, true).up(0, 0).up(1, 2).victims(2, 3).traffic(0).traffic(2).traffic(3));
  add(Steps(false).step(Step::kDial, {0}).hello(0, 2).poll());
  add(Steps(false).step(Step::kVictimConnects, {2, 0}).answer(0, 2));
  for (std::uint8_t flaw = 1; flaw < static_cast<std::uint8_t>(Flaw::kCount); ++flaw) {
    add(Steps().step(Step::kDial, {0}).hello(0, 2, Flaw{flaw}).poll().offer(0, 1).polls(2));
    add(Steps().step(Step::kVictimConnects, {2, 0}).answer(0, 2, Flaw{flaw}).offer(0, 0).polls(2));
  }
  for (std::uint8_t flaw = 1; flaw < static_cast<std::uint8_t>(Flaw::kEndless); ++flaw)
    add(Steps().victims(0, 2, Flaw{flaw}).step(Step::kVictimSends, {2, 1, 0}).polls(2));
  for (std::uint8_t what = 1; what < static_cast<std::uint8_t>(Spoil::kCount); ++what) {
    add(Steps().step(Step::kDial, {0}).spoil(0, Spoil{what}).hello(0, 2).poll());
    add(Steps().step(Step::kDial, {0}).hello(0, 2).poll().spoil(0, Spoil{what}).offer(0, 1).polls(2));
    add(Steps().step(Step::kVictimConnects, {2, 0}).answer(0, 2).spoil(0, Spoil{what}).offer(0, 0).polls(2));
    add(Steps()
            .step(Step::kVictimConnects, {2, 0})
            .poll()
            .step(Step::kAccept, {0})
            .poll()
            .spoil(0, Spoil{what})
            .hello(0, 2)
            .polls(2));
  }
  // What was overheard: it says no more than that somebody knocks.
  for (const bool knows_secret : {false, true})
    add(Steps(knows_secret)
            .step(Step::kDial, {0})
            .hello(0, 2, Flaw::kOverheard)
            .poll()
            .offer(0, 1)
            .polls(2)
            .step(Step::kDial, {1})
            .hello(1, 3, Flaw::kOverheard)
            .poll()
            .step(Step::kClose, {1, 1})
            .answer(2, 3));
  // Both dial at once, and one refuses.
  for (const std::uint8_t peer : {0, 2}) {
    add(Steps().step(Step::kVictimConnects, {peer, 0}).poll().up(0, peer).traffic(peer));
    add(Steps()
            .step(Step::kVictimConnects, {peer, 0})
            .poll()
            .step(Step::kAccept, {1})
            .up(0, peer)
            .anew(1, peer));
  }
  for (std::uint8_t reason = 1; reason <= 4; ++reason)
    add(Steps()
            .step(Step::kVictimConnects, {0, 0})
            .step(Step::kAccept, {0})
            .refuse(0, reason)
            .polls(2)
            .up(1, 0)
            .traffic(0));
  // A knock, while the victim computes; also where it takes the link for whole.
  add(Steps().step(Step::kDial, {0}).hello(0, 2).step(Step::kClose, {0, 0}).poll().anew(1, 2).traffic(2));
  add(Steps().up(0, 2).step(Step::kDial, {1}).hello(1, 2).step(Step::kClose, {1, 0}).wait(3).anew(2, 2));
  // A dial that nobody answers.
  add(Steps().step(Step::kVictimConnects, {2, 0}).step(Step::kVictimSends, {2, 9, 0}).wait(30).anew(0, 2));
  // A link that breaks, and the next one; parked by either side, and made anew.
  add(Steps().victims(0, 2).traffic(2).step(Step::kBreak, {2}).traffic(2).wait(3).anew(1, 2).traffic(2));
  add(Steps().victims(0, 2).traffic(2).step(Step::kLose, {1, 1}).traffic(2).wait(6).anew(1, 2).traffic(2));
  add(Steps().up(0, 2).traffic(2).up(1, 2).traffic(2).wait(3).up(2, 2).traffic(2));
  add(Steps()
          .victims(0, 2)
          .traffic(2)
          .notice(2, SlotHeader::kPark)
          .polls(3)
          .step(Step::kVictimSends, {2, 9, 0})
          .anew(1, 2)
          .traffic(2));
  add(Steps().up(0, 2).notice(2, SlotHeader::kPark).polls(3).up(1, 2).traffic(2));
  add(Steps().up(0, 2).notice(2, SlotHeader::kPark).send(2, 60, 20).polls(3));
  Steps crowded(true, false, true);
  crowded.victims(0, 2).send(2, 60, 20).poll().victims(1, 3).send(3, 60, 20).poll();
  crowded.step(Step::kTime, {20}).step(Step::kVictimConnects, {0, 0}).answer(2, 0).wait(1);
  crowded.notice(2, SlotHeader::kPark).notice(3, SlotHeader::kPark).wait(3);
  add(crowded.step(Step::kQueuePair, {0}).step(Step::kBind, {0}).offer(2, 0).polls(2).traffic(0));
  // More messages for a link that is not up than there are slots.
  Steps many(true, false, true);
  many.victims(0, 2)
      .send(2, 200, 20)
      .poll()
      .step(Step::kBreak, {2})
      .step(Step::kVictimSends, {2, 9, 0})
      .wait(8);
  for (int i = 0; i < 40; ++i) many.step(Step::kVictimSends, {2, 9, 0});
  add(many.anew(1, 2).polls(4).traffic(2));
  // An offer that answers none.
  add(Steps().step(Step::kVictimConnects, {2, 0}).answer(0, 2).offer(0, 1).polls(2));
  // Who waits finds out that the peer is gone; who does not wait, does not.
  add(Steps().victims(0, 2).traffic(2).step(Step::kQueuePair, {2}).step(Step::kProbe, {4}).wait(8));
  add(Steps().victims(0, 2).traffic(2).step(Step::kQueuePair, {2}).step(Step::kProbe, {3}).wait(8));
  // The victim gives peers up: with and without a link, and whom it does not know.
  add(Steps().victims(0, 2).traffic(2).step(Step::kVictimEnds, {2}).send(2, 60, 20).wait(1).up(1, 2));
  add(Steps().step(Step::kVictimConnects, {2, 0}).poll().step(Step::kVictimEnds, {2}).poll());
  add(Steps().step(Step::kVictimEnds, {3}).up(0, 3).step(Step::kVictimConnects, {3, 0}).poll());
  // More than there is credit for; slots that are none.
  Steps greedy;
  greedy.up(0, 2);
  for (int i = 0; i < 12; ++i) greedy.send(2, 60, 20);
  add(greedy.poll());
  for (const std::uint8_t length : {0, 4, 8})
    add(Steps().up(0, 2).step(Step::kSend, {2, 9, 0, 0, 0, SlotHeader::kMessage, 1, length, 0}).poll());
  for (const std::uint8_t kind : {0, 2, 3, 4, 5}) add(Steps().up(0, 2).send(2, 9, 50, kind).poll());
  add(Steps().up(0, 2).step(Step::kSend, {2, 9, 0, 0, 0, SlotHeader::kMessage, 0, 0x80, 1}).poll());
  add(Steps()
          .step(Step::kDial, {0})
          .step(Step::kRaw, {0, 3, 0x63, 0x33, 0x6F})
          .poll()
          .step(Step::kClose, {0, 0}));
  return all;
}

const Target kTarget(
    "verbs", [](std::span<const std::byte> input) { Attack(input).run(); }, seeds);

}  // namespace verbs_target
}  // namespace ch3_offload::fuzz
