// Set-up, the numbers of processes, and what time brings. See introductions.h.

#include "nic/introductions.h"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "engine/card.h"
#include "rdma/descriptor_limit.h"
#include "rdma/monotonic_clock.h"
#include "rdma/system_error.h"
#include "rdma/introduction/host_address.h"

namespace ch3_offload {
namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
/// Between looks at the sockets, and while nobody is being met. A look is a system call.
constexpr std::uint64_t kLookNs = 20'000;
constexpr std::uint64_t kQuietLookNs = 200'000;
/// Polls without a look at the clock, while nobody is being met and polls follow each other quickly.
constexpr std::uint32_t kMostBlindPolls = 15;
/// Between looks at what has deadlines.
constexpr std::uint64_t kTickNs = 10 * kMillisecondNs;
/// So long after find() may seek it anew, the number of a process that could not be reached is free, and
/// nothing is known of it any more.
constexpr std::uint64_t kRememberedNs = 10'000 * kMillisecondNs;
/// find() seeks a process that could not be reached anew after so long; the first time and at most.
constexpr std::uint64_t kAgainNs = 100 * kMillisecondNs;
constexpr std::uint64_t kMostAgainNs = 1000 * kMillisecondNs;
/// Between dials of a process that computes, while others are to be dialled. It does not dial back.
constexpr int kKnockMs = 2000;
/// Processes that cannot be reached, or are silent, are logged so often.
constexpr std::uint32_t kMostLines = 10;

}  // namespace

Result<std::uint32_t> choose_nid(std::string_view interface) {
  const Result<std::string> address =
      find_host_address(interface, /*loopback_serves=*/true, AddressFamily::kIpv4);
  in_addr nid{htonl(INADDR_LOOPBACK)};
  if (!address.ok() && !interface.empty())
    return Error{address.error().status, 0, "choosing the nid of this process: " + address.error().message};
  if (address.ok() && ::inet_pton(AF_INET, address.value().c_str(), &nid) != 1)
    return Error{Status::kUnsupported, 0,
                 "choosing the nid of this process: '" + address.value() + "' is no IPv4 address"};
  return std::uint32_t{ntohl(nid.s_addr)};
}

Introductions::Introductions(const Config& config)
    : config_(config),
      log_(config.log, config.log_context),
      user_(UserId{::geteuid()}),
      key_(config.key.proves() ? config.key : UserKey::of_user(user_)) {}

Introductions::~Introductions() = default;

Result<std::unique_ptr<Introductions>> Introductions::create(const Config& config) {
  assert(config.own < config.first_peer || index_of(config.own) >= config.peer_limit);
  std::unique_ptr<Introductions> made(new Introductions(config));  // The constructor is private.
  if (std::optional<Error> error = made->set_up()) return std::move(*error);
  return made;
}

std::optional<Error> Introductions::set_up() {
  if (config_.card.empty() || config_.card.size() > kMostProcessCardBytes)
    return Error{Status::kUnsupported, 0,
                 "the card of this process has " + std::to_string(config_.card.size()) + " bytes; 1 to " +
                     std::to_string(kMostProcessCardBytes) + " can be told"};
  raise_descriptor_limit();
  if (::getrandom(&instance_, sizeof instance_, 0) != sizeof instance_)
    return system_error("getrandom", errno);
  const Result<std::uint32_t> nid =
      config_.nid != 0 ? Result<std::uint32_t>(config_.nid) : choose_nid(config_.interface);
  if (!nid.ok()) return nid.error();
  self_ = {nid.value(), config_.pid};
  Result<std::vector<FileDescriptor>> listeners = listen_as(self_, user_);
  if (!listeners.ok()) return listeners.error();
  introducer_.emplace(SocketIntroducer::Config{.protocol = kProcesses,
                                               .secret = Transcript(key_.bytes()),
                                               .is_secret = key_.proves(),
                                               .timeout_ms = config_.patience_ms,
                                               .guest_ms = kGuestMs,
                                               .knock_ms = kKnockMs,
                                               .log = log_},
                      std::move(listeners.value()), static_cast<Introducer::Client&>(*this));
  bell_ = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell_.valid() || introducer_->descriptor() < 0 || !introducer_->watch_also(bell_.get()))
    return system_error("watching for processes that introduce themselves", errno);
  last_poll_ns_ = last_tick_ns_ = monotonic_ns();
  return {};
}

// Numbers

std::size_t Introductions::most_processes() const noexcept {
  const std::uint32_t first = index_of(config_.first_peer);
  return config_.peer_limit > first ? config_.peer_limit - first : 0;
}

Introductions::Process* Introductions::newest(ProcessId process) const noexcept {
  const auto found = by_id_.find(static_cast<std::uint64_t>(process));
  return found != by_id_.end() ? found->second : nullptr;
}

/// A process gets a number. nullptr: there is no number, or no memory, and nothing was done.
Introductions::Process* Introductions::add(PhysicalId id) noexcept {
  const bool is_new = free_count_ <= kLeastFree && processes_.size() < most_processes();
  if (!is_new && first_free_ == nullptr) return nullptr;
  const std::uint32_t first = index_of(config_.first_peer);
  const std::size_t index = is_new ? processes_.size() : slot_of(first_free_->number) - first;
  try {
    auto made = std::make_unique<Process>(
        id, is_new ? PeerId{first + static_cast<std::uint32_t>(index)} : first_free_->number);
    made->was_met = std::ranges::find(ended_, id.process()) != ended_.end();
    if (const Process* const old = newest(id.process()); old != nullptr) {
      made->was_met = made->was_met || old->was_met;
      made->is_logged = old->is_logged;
      made->failures = old->failures;
    }
    const std::size_t room = index < processes_.capacity() ? processes_.capacity() : 2 * index + 16;
    introducer_->make_room(room);
    untold_.reserve(room);
    leaving_.reserve(room);
    processes_.reserve(room);
    by_id_.insert_or_assign(static_cast<std::uint64_t>(id.process()), made.get());
    if (is_new) {
      processes_.push_back(std::move(made));
    } else {
      first_free_ = first_free_->next_free;
      processes_[index] = std::move(made);
      --free_count_;
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  untold_.push_back(processes_[index].get());
  last_found_ = nullptr;  // It may be that process anew.
  return processes_[index].get();
}

Status Introductions::find(ProcessId process, PeerId& peer) noexcept {
  if (process == self()) {
    peer = config_.own;
    return Status::kOk;
  }
  if (last_found_ != nullptr && process == last_found_->id.process()) {
    peer = last_found_->number;
    return Status::kOk;
  }
  Process* found = newest(process);
  if (found == nullptr || (found->state == State::kForgotten && monotonic_ns() >= found->again_at_ns)) {
    found = add(PhysicalId::of(process));
    if (found == nullptr) return Status::kNoMemory;
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_.get(), &one, sizeof one));
    is_rung_ = true;
  }
  peer = found->number;
  // A number that was forgotten is only given for a while.
  if (found->state != State::kForgotten) last_found_ = found;
  return Status::kOk;
}

void Introductions::forget(PeerId peer) noexcept {
  const std::size_t index = std::size_t{slot_of(peer)} - index_of(config_.first_peer);
  if (index >= processes_.size() || processes_[index]->number != peer) return;
  Process& process = *processes_[index];
  if (process.state == State::kForgotten || process.state == State::kFree) return;
  introducer_->drop(process);
  std::erase(untold_, &process);
  const bool is_held = process.state == State::kUnreachable;  // find() still gives this number for a while.
  if (!is_held && newest(process.id.process()) == &process)
    by_id_.erase(static_cast<std::uint64_t>(process.id.process()));
  last_found_ = nullptr;
  if (process.was_met) ended_[next_ended_++ % ended_.size()] = process.id.process();
  process.state = State::kForgotten;
  leaving_.push_back(&process);
}

/// The numbers of those who have gone, and that nothing uses, become free.
void Introductions::let_go() noexcept {
  if (leaving_.empty()) return;
  const std::uint64_t now_ns = monotonic_ns();
  std::erase_if(leaving_, [&](Process* process) {
    const bool is_known = newest(process->id.process()) == process;
    if (is_known && now_ns < process->again_at_ns + kRememberedNs) return false;
    if (is_known) by_id_.erase(static_cast<std::uint64_t>(process->id.process()));
    if (!listener_->on_unused(process->number)) return false;
    process->number = next_generation(process->number);
    process->state = State::kFree;
    (first_free_ == nullptr ? first_free_ : last_free_->next_free) = process;
    last_free_ = process;
    ++free_count_;
    return true;
  });
}

void Introductions::tell(Process& process) noexcept {
  if (std::exchange(process.is_told, true)) return;
  std::erase(untold_, &process);
  ++happened_;
  listener_->on_process(process.number, process.id.process(), user_);
}

/// Those that find() has named are told, and sought.
void Introductions::tell_new() noexcept {
  std::uint64_t rung;
  if (std::exchange(is_rung_, false)) static_cast<void>(!::read(bell_.get(), &rung, sizeof rung));
  while (!untold_.empty()) {
    Process& process = *untold_.front();
    tell(process);
    if (!process.id.is_possible())
      unreachable(process, "no process has such an id");
    else if (addresses(process) == 0)
      nobody_there(process);
    else
      introducer_->seek(process);
  }
}

/// `frame`: the Offer of the process, whose proof was verified.
void Introductions::met(Process& process, const Frame& frame) noexcept {
  const auto& card = frame.as<ProcessCard>();
  const PeerNames names{PeerId{card.known_as}, PeerId{card.own}};
  process.state = State::kMet;
  process.instance = card.instance;
  process.known_as = names.known_as;
  process.was_met = true;
  process.is_logged = false;
  process.failures = 0;
  ++happened_;
  try {
    listener_->on_card(process.number, card_with_names(card_in(frame), names));
  } catch (const std::bad_alloc&) {
    unreachable(process, "there is no memory for its card");
  }
}

/// `why`: for the log.
void Introductions::unreachable(Process& process, std::string_view why) noexcept {
  introducer_->drop(process);
  process.state = State::kUnreachable;
  process.again_at_ns = monotonic_ns() + std::min(kAgainNs << std::min(process.failures, 4u), kMostAgainNs);
  ++process.failures;
  ++happened_;
  if (!std::exchange(process.is_logged, true)) log_about(process, "cannot be reached", why);
  listener_->on_card(process.number, {});
}

/// There is no process of that id. One that was met has ended, as processes do: whoever talks to it hears
/// that from the operation.
void Introductions::nobody_there(Process& process) noexcept {
  if (process.was_met) process.is_logged = true;
  unreachable(process, key_.proves() ? "nobody listens there"
                       : process.id.nid == self_.nid
                           ? "no process of this user has that id"
                           : "no process of this user and node has that id; to meet "
                             "processes of other nodes, all need the same key file");
}

void Introductions::log_about(const Process& process, const char* what, std::string_view why) noexcept {
  if (lines_ >= kMostLines) return;
  ++lines_;
  const PhysicalId id = process.id;
  log_("the process %u.%u.%u.%u/%u %s: %.*s", id.nid >> 24, id.nid >> 16 & 255, id.nid >> 8 & 255,
       id.nid & 255, id.pid, what, static_cast<int>(why.size()), why.data());
}

// What is said

std::size_t Introductions::addresses(const Introducer::Contact&) const noexcept {
  return std::size_t{config_.meets_on_node} + std::size_t{key_.proves()};
}

SocketAddress Introductions::address(const Introducer::Contact& contact, std::size_t index) const noexcept {
  const PhysicalId id = of(contact).id;
  return index == 0 && config_.meets_on_node ? id.on_node(user_) : id.on_net();
}

void Introductions::say_hello(const Introducer::Contact& contact, Frame& hello) const noexcept {
  hello.as<ProcessHello>().receiver = static_cast<std::uint64_t>(of(contact).id.process());
}

void Introductions::send_card(Process& process) noexcept {
  Frame frame = make_frame(kProcesses, FrameKind::kOffer);
  auto& card = frame.as<ProcessCard>();
  card.sender = static_cast<std::uint64_t>(self());
  card.receiver = static_cast<std::uint64_t>(process.id.process());
  card.instance = instance_;
  card.user = static_cast<std::uint32_t>(user_);
  card.own = index_of(config_.own);
  card.known_as = index_of(process.number);
  std::ranges::copy(config_.card, card.card.begin());
  introducer_->offer(process, frame);
}

// What is heard

std::optional<Refusal> Introductions::meet(const Frame& hello, Introducer::Guest&, Frame& answer) {
  if (ProcessId{hello.as<ProcessHello>().receiver} != self()) return Refusal::kStranger;
  answer.as<ProcessHello>().receiver = static_cast<std::uint64_t>(self());
  return {};
}

/// A dialler that was introduced before is told the same again: it may not have heard.
std::optional<Refusal> Introductions::identify(const Frame& offer, Introducer::Guest& guest) noexcept {
  const auto& card = offer.as<ProcessCard>();
  const PhysicalId id = PhysicalId::of(ProcessId{card.sender});
  if (ProcessId{card.receiver} != self() || id.process() == self() || !id.is_possible())
    return Refusal::kStranger;
  if (UserId{card.user} != user_) return Refusal::kUser;
  Process* const known = newest(id.process());
  const bool was_met = known != nullptr && known->state == State::kMet;
  const bool is_same =
      was_met && known->instance == card.instance && known->known_as == PeerId{card.known_as};
  const bool is_sought = known != nullptr && known->state == State::kSought;
  Process* const process = is_same || is_sought ? known : add(id);
  if (process == nullptr) return Refusal::kFull;
  if (was_met && process != known) listener_->on_replaced(known->number);
  guest.contact = process;
  return {};
}

bool Introductions::on_answer(Introducer::Contact& contact, const Frame&) noexcept {
  send_card(of(contact));
  return true;
}

/// If both have dialled, both say the same. If the process was started anew in between, the two that have its
/// number fail at their first message, and get new numbers.
void Introductions::on_offer(Introducer::Contact& contact, const Frame& offer, bool is_answer) noexcept {
  Process& process = of(contact);
  if (is_answer) {
    const auto& card = offer.as<ProcessCard>();
    if (ProcessId{card.sender} != process.id.process() || ProcessId{card.receiver} != self())
      return unreachable(process, describe(Refusal::kStranger));
    if (UserId{card.user} != user_) return unreachable(process, describe(Refusal::kUser));
    introducer_->ready(process);
    return met(process, offer);
  }
  tell(process);
  if (process.state != State::kMet) met(process, offer);
  ++happened_;
  send_card(process);
}

/// Who was met as a guest need not have heard it.
void Introductions::on_broken(Introducer::Contact& contact) noexcept {
  if (of(contact).state != State::kSought) introducer_->drop(contact);
}

void Introductions::on_gone(Introducer::Contact& contact, Refusal reason) noexcept {
  if (reason == Refusal::kNobody) return nobody_there(of(contact));
  unreachable(of(contact), describe(reason));
}

// Time

std::uint64_t Introductions::next_due_ns() const noexcept {
  if (!untold_.empty()) return 0;
  return introducer_->tick_ns() == 0 ? UINT64_MAX : introducer_->tick_ns();
}

std::size_t Introductions::poll(Listener& listener) noexcept {
  listener_ = &listener;
  happened_ = 0;
  tell_new();
  const bool is_quiet = happened_ == 0 && introducer_->tick_ns() == 0;
  if (is_quiet && blind_polls_ > 0) {
    --blind_polls_;
    return 0;
  }
  const std::uint64_t now_ns = monotonic_ns();
  blind_polls_ = elapsed_ns(now_ns, last_clock_ns_) < kLookNs ? kMostBlindPolls : 0;
  last_clock_ns_ = now_ns;
  if (happened_ == 0 && elapsed_ns(now_ns, last_poll_ns_) < (is_quiet ? kQuietLookNs : kLookNs)) return 0;
  last_poll_ns_ = now_ns;
  introducer_->service();
  introducer_->tick(now_ns);
  if (elapsed_ns(now_ns, last_tick_ns_) < kTickNs) return happened_;
  last_tick_ns_ = now_ns;
  let_go();
  look_at_silence();
  return happened_;
}

/// Gives up those that no kernel has answered for, for too long. No frame gives a process more time.
void Introductions::look_at_silence() noexcept {
  const std::uint64_t patience_ns = introducer_->patience_ns();
  const std::uint64_t tick_ns = patience_ns - std::exchange(patience_at_tick_ns_, patience_ns);
  const std::uint64_t most_ns = static_cast<std::uint64_t>(config_.patience_ms) * kMillisecondNs;
  for (std::size_t i = introducer_->sought().size(); i > 0; --i) {
    Process& process = of(*introducer_->sought()[i - 1]);
    if (process.state != State::kSought || process.answer() == Process::Answer::kNotDialled) continue;
    (process.answer() == Process::Answer::kTaken ? process.silent_ns : process.unanswered_ns) += tick_ns;
    if (process.silent_ns >= most_ns && !std::exchange(process.is_silence_logged, true))
      log_about(process, "is waited for", "it runs, or hangs, and has not answered yet");
    if (process.unanswered_ns >= most_ns) unreachable(process, "it has not answered for too long");
  }
}

}  // namespace ch3_offload
