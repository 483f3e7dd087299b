#include "rdma/verbs/many_peers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "counting_allocator.h"
#include "rdma/monotonic_clock.h"
#include "rdma/verbs/fake_verbs.h"
#include "rdma/verbs/simulated_descriptors.h"

namespace ch3_offload {
namespace {

constexpr PeerId kSubject{0};
constexpr std::uint64_t kSecondNs = 1'000'000'000;
/// Without a message for so long, an exchange has failed.
constexpr std::uint64_t kHangNs = 60 * kSecondNs;
/// Polls of the subject in one turn.
constexpr int kPollsInTurn = 4;
/// Polls of a peer that is woken, before others have their turn.
constexpr int kMostPollsOfPeer = 64;
constexpr std::size_t kBudget = 64;
constexpr std::size_t kMostErrors = 8;
constexpr int kMostRests = 20;

/// The program makes calls of the subject.
bool is_subjects_turn = false;

bool is_subjects_memory() noexcept { return is_subjects_turn && !fake_verbs::is_in_call(); }

std::uint64_t processor_ns() noexcept {
  timespec now{};
  static_cast<void>(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now));
  return static_cast<std::uint64_t>(now.tv_sec) * kSecondNs + static_cast<std::uint64_t>(now.tv_nsec);
}

/// For its life the subject's calls are made: their time and memory count as the subject's.
class SubjectsTurn {
 public:
  explicit SubjectsTurn(std::uint64_t& cpu_ns) noexcept : cpu_ns_(cpu_ns), began_ns_(processor_ns()) {
    is_subjects_turn = true;
  }
  ~SubjectsTurn() {
    is_subjects_turn = false;
    cpu_ns_ += processor_ns() - began_ns_;
  }
  SubjectsTurn(const SubjectsTurn&) = delete;
  SubjectsTurn& operator=(const SubjectsTurn&) = delete;

 private:
  std::uint64_t& cpu_ns_;
  std::uint64_t began_ns_;
};

/// An address of the node that no other program listens at. A test that runs beside this one may dial a port
/// whose owner it has killed; of so many listeners here, one may have got that port.
ibv_gid address_of_program() noexcept {
  const auto process = static_cast<std::uint32_t>(::getpid());
  return fake_verbs::ipv4_gid(127, static_cast<std::uint8_t>(0x80 | (process >> 16 & 0x7F)),
                              static_cast<std::uint8_t>(process >> 8), static_cast<std::uint8_t>(process));
}

/// One device with room for all, and no thread of its own.
fake_verbs::Config one_large_device(bool tells_last_receive) {
  constexpr int kPlenty = 1 << 20;
  fake_verbs::Config config;
  fake_verbs::DeviceConfig& device = config.devices[0];
  for (fake_verbs::Gid& gid : device.ports[0].gids)
    if (gid.type == IBV_GID_TYPE_ROCE_V2) gid.value = address_of_program();
  device.max_contexts = device.max_domains = device.max_regions = kPlenty;
  device.max_completion_queues = device.max_receive_queues = device.max_queue_pairs = kPlenty;
  device.queue_pair_numbers = kPlenty;
  config.pump_interval = {};
  config.last_wqe_event = tells_last_receive;
  return config;
}

/// What suffices to talk to one process.
RailConfig small_rail() {
  return {.slot_bytes = 256, .slots_per_slab = 32, .most_receive_slots = 32, .most_queue_pairs = 2};
}

/// How many the descriptors suffice for: a listener each, and both ends of the subject's connections.
std::uint32_t most_processes() noexcept {
  constexpr std::uint64_t kOthers = 2 * (SocketIntroducer::kMostDials + SocketIntroducer::kMostGuests) + 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max <= kOthers) return 0;
  return static_cast<std::uint32_t>(std::min<rlim_t>(limit.rlim_max - kOthers, 1u << 20));
}

}  // namespace

struct ManyPeers::SubjectSink final : Sink {
  explicit SubjectSink(ManyPeers& owner) : job(owner) {}
  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    job.on_message(index_of(kSubject), peer, message);
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId peer, Status) noexcept override {
    job.note_error("the subject lost peer " + std::to_string(index_of(peer)));
  }
  bool awaits(PeerId) const noexcept override { return waits; }

  ManyPeers& job;
  bool waits = true;
};

/// A peer waits for nobody. In a job, each of its many peers would seldom be the one that it asks for.
struct ManyPeers::PeerSink final : Sink {
  PeerSink(ManyPeers& owner, std::uint32_t number) : job(owner), self(number) {}
  Delivery on_message(PeerId peer, std::span<const std::byte> message) noexcept override {
    job.on_message(self, peer, message);
    return Delivery::kTaken;
  }
  void on_write_arrived(PeerId, Immediate, std::size_t) noexcept override {}
  void on_write_done(PeerId, WorkId, Status) noexcept override {}
  void on_peer_down(PeerId, Status) noexcept override {
    job.note_error("peer " + std::to_string(self) + " lost the subject");
  }
  bool awaits(PeerId) const noexcept override { return false; }

  ManyPeers& job;
  std::uint32_t self;
};

struct ManyPeers::Peer {
  Peer(ManyPeers& owner, std::uint32_t number) : sink(owner, number) {}
  PeerSink sink;
  std::unique_ptr<VerbsProvider> provider;
  Endpoint* here = nullptr;     ///< The subject's of this peer.
  Endpoint* subject = nullptr;  ///< This peer's of the subject.
  bool has_begun = false;       ///< In this round.
  bool to_send = false;         ///< Its message has found no room yet.
  std::uint32_t got = 0;        ///< Messages of the subject.
  std::uint32_t sent = 0;       ///< Messages that the subject has got.
};

ManyPeers::ManyPeers(const Conditions& conditions) : conditions_(conditions) {}

Result<std::unique_ptr<ManyPeers>> ManyPeers::make(const Conditions& conditions) {
  std::unique_ptr<ManyPeers> job(new ManyPeers(conditions));  // The constructor is private.
  std::string why = job->set_up();
  if (!why.empty()) return Error{Status::kUnsupported, 0, std::move(why)};
  return job;
}

std::string ManyPeers::set_up() {
  const std::uint32_t processes = conditions_.processes;
  if (const std::uint32_t most = most_processes(); processes > most)
    return std::to_string(processes) +
           " processes need more descriptors than this process may open (ulimit "
           "-Hn): " +
           std::to_string(most) + " fit";
  allocator::marks = &is_subjects_memory;
  fake_verbs::reset(one_large_device(conditions_.tells_last_receive));
  VerbsConfig config;
  config.job_secret.fill(std::byte{0x5A});
  config.peer_timeout_ms = conditions_.peer_timeout_ms;
  config.log_context = this;
  config.log = [](void* job, LogScope, const char* line) {
    static_cast<ManyPeers*>(job)->note_error(std::string("logged: ") + line);
  };
  {
    const SubjectsTurn turn(subject_cpu_ns_);
    Result<std::unique_ptr<VerbsProvider>> made = VerbsProvider::create(config);
    if (!made.ok()) return made.error().message;
    subject_ = std::move(made.value());
    subject_sink_ = std::make_unique<SubjectSink>(*this);
  }
  config.rail = small_rail();
  config.most_send_slots = 64;
  peers_.resize(1);
  for (std::uint32_t i = 1; i < processes; ++i) {
    const simulated_descriptors::Process process(i);
    peers_.push_back(std::make_unique<Peer>(*this, i));
    order_.push_back(i);
    config.self = PeerId{i};
    Result<std::unique_ptr<VerbsProvider>> made = VerbsProvider::create(config);
    if (!made.ok()) return "peer " + std::to_string(i) + ": " + made.error().message;
    peers_[i]->provider = std::move(made.value());
    peers_[i]->provider->arm();
  }
  return {};
}

ManyPeers::~ManyPeers() {
  if (subject_ != nullptr) subject_->abandon();
  for (const auto& peer : peers_)
    if (peer != nullptr && peer->provider != nullptr) peer->provider->abandon();
}

std::int64_t ManyPeers::subject_heap_bytes() noexcept { return allocator::live_bytes_marked; }

void ManyPeers::connect_subject(Peer& peer) {
  const std::string address = peer.provider->local_address();
  const SubjectsTurn turn(subject_cpu_ns_);
  Result<Endpoint*> connected = subject_->connect(PeerId{peer.sink.self}, address);
  if (connected.ok())
    peer.here = connected.value();
  else
    note_error(connected.error().message);
}

void ManyPeers::connect_all() {
  const std::int64_t before = subject_heap_bytes();
  connect_subject(*peers_.back());
  heap_for_last_peer_ = subject_heap_bytes() - before;
  for (std::size_t i = 1; i < peers_.size(); ++i) connect_subject(*peers_[i]);
  heap_for_connecting_ = subject_heap_bytes() - before;
}

void ManyPeers::note_error(std::string text) {
  if (errors_.size() < kMostErrors) errors_.push_back(std::move(text));
}

/// Returns false if there is no room now.
bool ManyPeers::send(VerbsProvider& from, Endpoint& endpoint, const Message& message) {
  std::span<std::byte> slot;
  const Status status = from.reserve(endpoint, sizeof message, slot);
  if (status == Status::kAgain) return false;
  if (status != Status::kOk) {
    note_error("a message from " + std::to_string(message.from) + " to " + std::to_string(message.to) +
               " was refused");
    return true;
  }
  std::memcpy(slot.data(), &message, sizeof message);
  from.commit(endpoint, sizeof message);
  return true;
}

void ManyPeers::on_message(std::uint32_t self, PeerId sender, std::span<const std::byte> bytes) {
  Message message{};
  if (bytes.size() == sizeof message) std::memcpy(&message, bytes.data(), sizeof message);
  Peer& peer = *peers_[std::max(self, index_of(sender))];
  std::uint32_t& count = self == index_of(kSubject) ? peer.sent : peer.got;
  if (bytes.size() != sizeof message || message.from != index_of(sender) || message.to != self ||
      message.round != round_ || ++count != round_) {
    note_error("message " + std::to_string(message.round) + " from " + std::to_string(message.from) + " to " +
               std::to_string(message.to) + " came in round " + std::to_string(round_));
    return;
  }
  last_message_ns_ = monotonic_ns();
  if (peer.got != round_ || peer.sent != round_) return;
  ++ended_;
  if (peer.has_begun) --under_way_;
}

/// Lets further peers begin: so that as many as may have begun and not ended.
void ManyPeers::begin_some() {
  while (under_way_ < conditions_.begun_at_once && next_to_begin_ < order_.size()) {
    Peer& peer = *peers_[order_[next_to_begin_++]];
    Result<Endpoint*> connected = peer.provider->connect(kSubject, subject_->local_address());
    if (!connected.ok()) {
      note_error(connected.error().message);
      continue;
    }
    peer.subject = connected.value();
    peer.has_begun = true;
    ++under_way_;
    peer.to_send = !send(*peer.provider, *peer.subject, {peer.sink.self, index_of(kSubject), round_});
  }
}

void ManyPeers::poll_subject() {
  const SubjectsTurn turn(subject_cpu_ns_);
  for (int i = 0; i < kPollsInTurn; ++i) {
    static_cast<void>(subject_->poll(*subject_sink_, kBudget));
    most_descriptors_ = std::max(most_descriptors_, subject_->figures().descriptors);
  }
  std::erase_if(to_be_sent_, [&](Peer* peer) {
    return send(*subject_, *peer->here, {index_of(kSubject), peer->sink.self, round_});
  });
}

/// Those that are woken.
void ManyPeers::poll_peers() {
  simulated_descriptors::find_woken(woken_);
  for (const std::uint32_t number : woken_) {
    Peer& peer = *peers_[number];
    VerbsProvider& provider = *peer.provider;
    provider.disarm();
    for (int i = 0; i < kMostPollsOfPeer; ++i) {
      const std::size_t found = provider.poll(peer.sink, kBudget);
      if (peer.to_send)
        peer.to_send = !send(provider, *peer.subject, {peer.sink.self, index_of(kSubject), round_});
      if (found == 0 && provider.arm() && provider.poll(peer.sink, kBudget) == 0) break;
    }
  }
}

ManyPeers::Phase ManyPeers::so_far() const {
  const VerbsFigures figures = subject_->figures();
  const fake_verbs::Counters device = fake_verbs::counters();
  Phase phase;
  phase.wall_s = static_cast<double>(monotonic_ns()) / kSecondNs;
  phase.subject_s = static_cast<double>(subject_cpu_ns_) / kSecondNs;
  phase.dials = figures.dials;
  for (std::size_t i = 1; i < peers_.size(); ++i) phase.accepted += peers_[i]->provider->figures().dials;
  phase.most_descriptors = most_descriptors_;
  phase.parked = figures.links.parked;
  phase.made = figures.links.made;
  phase.lost = figures.links.lost;
  phase.probes = figures.traffic.probes;
  phase.credit_messages = figures.traffic.credit_messages;
  phase.device_messages = device.sends + device.writes + device.writes_with_immediate;
  return phase;
}

ManyPeers::Phase ManyPeers::since(const Phase& before) const {
  Phase phase = so_far();
  phase.wall_s -= before.wall_s;
  phase.subject_s -= before.subject_s;
  phase.dials -= before.dials;
  phase.accepted -= before.accepted;
  phase.parked -= before.parked;
  phase.made -= before.made;
  phase.lost -= before.lost;
  phase.probes -= before.probes;
  phase.credit_messages -= before.credit_messages;
  phase.device_messages -= before.device_messages;
  return phase;
}

ManyPeers::Phase ManyPeers::exchange() {
  ++round_;
  most_descriptors_ = 0;
  ended_ = under_way_ = next_to_begin_ = 0;
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_.below(i)]);
  for (std::size_t i = 1; i < peers_.size(); ++i) {
    peers_[i]->has_begun = false;
    to_be_sent_.push_back(peers_[i].get());
  }
  const Phase before = so_far();
  last_message_ns_ = monotonic_ns();
  if (round_ == 1) connect_all();
  while (ended_ < order_.size()) {
    begin_some();
    poll_subject();
    poll_peers();
    if (elapsed_ns(monotonic_ns(), last_message_ns_) < kHangNs) continue;
    note_error("nothing came for a minute: " + std::to_string(ended_) + " of " +
               std::to_string(order_.size()) + " peers have exchanged their messages");
    break;
  }
  return since(before);
}

ManyPeers::Phase ManyPeers::rest(double seconds, bool awaits) {
  subject_sink_->waits = awaits;
  most_descriptors_ = 0;
  const Phase before = so_far();
  const std::uint64_t began_ns = monotonic_ns();
  while (static_cast<double>(elapsed_ns(monotonic_ns(), began_ns)) < seconds * kSecondNs) {
    poll_subject();
    poll_peers();
  }
  subject_sink_->waits = true;
  return since(before);
}

void ManyPeers::come_to_rest() {
  // Links are looked at eight times in the peer time-out. The first look that finds an item that was not
  // acknowledged asks for its completion.
  const double three_looks_s = conditions_.peer_timeout_ms * 1e-3 * 3 / 8;
  for (int i = 0; i < kMostRests; ++i) {
    const Phase phase = rest(three_looks_s, /*awaits=*/false);
    if (phase.device_messages == 0 && phase.made == 0 && phase.dials + phase.accepted == 0) return;
  }
  note_error("the job does not come to rest");
}

}  // namespace ch3_offload
