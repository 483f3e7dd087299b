#include "nic/host_targets.h"

#include <new>
#include <utility>

namespace ch3_offload {

namespace {

/// Of a process that is no rank of the interface.
constexpr std::uint32_t kNoRank = UINT32_MAX;

}  // namespace

HostTargets::HostTargets(HostDriver& driver, ProcessBook& book, ClientMemory* client)
    : driver_(driver),
      engine_(driver.engine()),
      book_(book),
      addresses_(client),
      descriptors_(driver.descriptors().begin(), driver.descriptors().end()) {
  if (book.descriptor() >= 0) descriptors_.push_back(book.descriptor());
  if (client != nullptr) is_silent_ = &client->broken();
}

// Interfaces, and who the processes are to them.

Status HostTargets::open(unsigned number, const TargetInterfaceConfig& config, TargetBoard& board) noexcept {
  Interface& interface = interfaces_[number];
  if (interface.targets != nullptr || !engine_.targets_are_closed(number)) return Status::kAgain;
  TargetInterfaceConfig checked = config;
  checked.identifies_all = !book_.knows_all();
  if (book_.knows_all()) checked.user = book_.user();
  interface.targets = engine_.open_targets(number, checked, board);
  if (interface.targets == nullptr) return Status::kNoMemory;
  if (is_silent_ != nullptr) interface.targets->fall_silent_when(*is_silent_);
  if (identify_all(interface)) return Status::kOk;
  static_cast<void>(close_interface(number));  // Nothing has begun: it ends at once.
  return Status::kNoMemory;
}

Status HostTargets::close_interface(unsigned number) noexcept {
  Interface& interface = interfaces_[number];
  if (interface.targets != nullptr) {
    told_before_ += interface.targets->told();
    interface = {};
    engine_.close_targets(number);
  }
  addresses_.forget(number);
  return engine_.targets_are_closed(number) ? Status::kOk : Status::kAgain;
}

void HostTargets::close_all() noexcept {
  for (unsigned number = 0; number < kTargetInterfaces; ++number) static_cast<void>(close_interface(number));
}

Status HostTargets::set_ranks(const TargetCommand& command) noexcept {
  Interface& interface = interfaces_[command.interface];
  if (interface.targets == nullptr) return Status::kUnsupported;
  try {
    std::vector<ProcessId> copies;
    std::span<const ProcessId> ranks;
    const Status status = addresses_.find_ranks(command.address, command.length, copies, ranks);
    if (status != Status::kOk) return status;
    std::unordered_map<ProcessId, std::uint32_t> rank_of;
    for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) rank_of.emplace(ranks[rank], rank);
    interface.rank_of = std::move(rank_of);
  } catch (const std::bad_alloc&) {
    return Status::kNoMemory;
  }
  interface.has_ranks = true;
  return identify_all(interface) ? Status::kOk : Status::kNoMemory;
}

bool HostTargets::identify(Interface& interface, PeerId peer, ProcessId process, UserId user) noexcept {
  ProcessId its = process;
  if (interface.has_ranks) {
    const auto rank = interface.rank_of.find(process);
    its = make_logical_id(rank == interface.rank_of.end() ? kNoRank : rank->second);
  }
  return interface.targets->identify(slot_of(peer), its, user);
}

bool HostTargets::identify_all(Interface& interface) noexcept {
  if (book_.knows_all()) return true;  // A number says who it is.
  if (!identify(interface, engine_.self(), book_.self(), book_.user())) return false;
  for (const auto& [peer, known] : known_)
    if (known.is_identified && !identify(interface, PeerId{peer}, known.process, known.user)) return false;
  return true;
}

/// Null: no memory, and the peer fails: it must not be taken for anybody else.
HostTargets::Known* HostTargets::known(PeerId peer) noexcept {
  try {
    return &known_[index_of(peer)];
  } catch (const std::bad_alloc&) {
    engine_.fail_peer(peer);
    return nullptr;
  }
}

void HostTargets::on_process(PeerId peer, ProcessId process, UserId user) noexcept {
  Known* const its = known(peer);
  if (its == nullptr) return;
  its->is_identified = true;
  its->process = process;
  its->user = user;
  for (Interface& interface : interfaces_)
    if (interface.targets != nullptr && !identify(interface, peer, process, user)) engine_.fail_peer(peer);
}

/// The engine keeps a card for which it has not asked. A peer without one fails, and the book forgets it.
void HostTargets::on_card(PeerId peer, std::string_view card) noexcept { engine_.introduce(peer, card); }

/// The engine may have had no connection with it, by which it would have learnt that.
void HostTargets::on_replaced(PeerId peer) noexcept { engine_.fail_peer(peer); }

bool HostTargets::on_unused(PeerId peer) noexcept { return engine_.forget_peer(peer); }

void HostTargets::on_event(const Event& event) noexcept {
  if (event.kind != Event::Kind::kPeerFailed) return;
  known_.erase(index_of(event.peer));
  for (const Interface& interface : interfaces_)
    if (interface.targets != nullptr) interface.targets->forget(slot_of(event.peer));
  book_.forget(event.peer);
}

// Progress.

std::size_t HostTargets::serve() noexcept {
  const std::size_t happened = book_.poll(*this);
  return happened + take_events();
}

std::size_t HostTargets::take_events() noexcept {
  std::size_t taken = 0;
  for (Event event; engine_.next_book_event(event); ++taken) on_event(event);
  return taken;
}

std::size_t HostTargets::progress() noexcept {
  std::size_t happened = serve();
  if (!engine_.has_events()) happened += engine_.progress();
  return happened + take_events();
}

std::uint64_t HostTargets::told() const noexcept {
  std::uint64_t sum = told_before_;
  for (const Interface& interface : interfaces_)
    if (interface.targets != nullptr) sum += interface.targets->told();
  return sum;
}

}  // namespace ch3_offload
