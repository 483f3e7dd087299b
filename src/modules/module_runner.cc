#include "modules/module_runner.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

#include "rdma/monotonic_clock.h"

namespace ch3_offload {

ModuleBudgets budgets_of(const EngineConfig& config) noexcept {
  ModuleBudgets budgets;
  budgets.memory_bytes = config.program_memory_bytes;
  budgets.instructions = config.program_instructions;
  budgets.activation_ns = std::max(config.program_instructions * kModuleInstructionNs, kLeastActivationNs);
  budgets.time_percent = config.program_time_percent;
  return budgets;
}

std::size_t ModuleRunner::advance() noexcept {
  if (!news_.messages && next_due_ns() > 0) return 0;
  news_.messages = false;
  spent_ns_ = 0;
  std::size_t happened = 0;
  try {
    happened += take_ends();
    if (has_lost_) tell_lost();
    happened += take_arrivals();
    happened += leave();
    if (timers_are_first_) happened += fire_timers();
    happened += handle_arrivals();
    if (!timers_are_first_) happened += fire_timers();
    timers_are_first_ = !timers_are_first_;
    if (std::exchange(timers_changed_, false)) note_timers();
    happened += leave();
  } catch (const std::bad_alloc&) {
    news_.messages = true;  // It goes on when there is memory.
  }
  return happened;
}

std::uint64_t ModuleRunner::next_due_ns() const noexcept {
  if (!news_.timers) return UINT64_MAX;
  const std::uint64_t now = monotonic_ns();
  return due_ns_ > now ? due_ns_ - now : 0;
}

/// Throws std::bad_alloc.
std::shared_ptr<ModuleMessage> ModuleRunner::make(std::string_view payload) {
  std::shared_ptr<ModuleMessage> made = ModuleMessage::make(payload.size(), account_);
  if (made == nullptr) throw std::bad_alloc();
  if (!payload.empty()) std::memcpy(made->payload().data(), payload.data(), payload.size());
  return made;
}

/// As plain memory, or so that nothing is registered.
Payload ModuleRunner::payload_of(Transfer& transfer, std::span<std::byte> bytes) const noexcept {
  if (may_register_ || bytes.empty()) return {bytes.data(), bytes.size(), nullptr};
  transfer.piece = {0, bytes.size()};
  transfer.layout = {};
  transfer.layout.kind = PayloadLayout::Kind::kPieces;
  transfer.layout.piece_count = 1;
  transfer.layout.pieces = &transfer.piece;
  transfer.layout.element_bytes = bytes.size();
  transfer.layout.extent_bytes = static_cast<std::ptrdiff_t>(bytes.size());
  return {bytes.data(), bytes.size(), &transfer.layout};
}

// Messages in.

std::size_t ModuleRunner::take_ends() {
  std::size_t taken = 0;
  for (Engine::ProgramEnd end; engine_.next_program_end(end); ++taken) {
    if (end.cookie == nullptr) continue;  // It was dropped.
    Transfer& transfer = *static_cast<Transfer*>(end.cookie);
    const auto place = transfer.place;
    const Departure& departure = transfer.departure;
    const auto group = groups_.find(departure.group);
    if (transfer.arrival != nullptr) {
      arrived(transfer.sender, *transfer.arrival, end.status);
    } else if (group != groups_.end()) {
      if (departure.kind == Leaving::kTrouble && group->second.troubles > 0) --group->second.troubles;
      if (departure.kind == Leaving::kForModule && end.status != Status::kOk)
        tell_trouble(group->second, group->first, has_failed(departure.rank));
    }
    transfers_.erase(place);
  }
  return taken;
}

std::size_t ModuleRunner::take_arrivals() {
  if (stuck_ != nullptr) receive(stuck_id_, *std::exchange(stuck_, nullptr));
  std::size_t taken = 0;
  // What the client asks is taken whatever peers send.
  while (stuck_ == nullptr && taken < kMostTaken && take_arrival(kProgramRequestKey)) ++taken;
  while (stuck_ == nullptr && taken < kMostTaken && arriving_bytes_ < kMostArriving &&
         take_arrival(kProgramKey))
    ++taken;
  if (taken == kMostTaken) news_.messages = true;
  return taken;
}

bool ModuleRunner::take_arrival(const MatchKey& key) {
  MessageId id;
  PeerId sender;
  std::size_t length = 0;
  if (!engine_.next_program_message(key, id, sender, length)) return false;
  const bool is_possible = length >= sizeof(ModuleHeader) &&
                           length - sizeof(ModuleHeader) <= kMostModulePayload &&
                           (key == kProgramKey || sender == engine_.self());
  Transfer* transfer = nullptr;
  if (is_possible) {
    try {
      transfer = &transfers_.emplace_back();
      transfer->place = std::prev(transfers_.end());
      transfer->sender = index_of(sender);
      Arrival& arrival = senders_[index_of(sender)].arrivals.emplace_back();
      transfer->arrival = &arrival;
      arrival.message = ModuleMessage::make(length - sizeof(ModuleHeader), account_);
      if (arrival.message == nullptr) {
        senders_[index_of(sender)].arrivals.pop_back();
        throw std::bad_alloc();
      }
    } catch (const std::bad_alloc&) {
      if (transfer != nullptr) transfers_.pop_back();
      transfer = nullptr;
    }
  }
  if (transfer != nullptr) {
    arriving_bytes_ += length + kArrivalBytes;
    receive(id, *transfer);
    return true;
  }
  // Nobody's, or there is no memory: it is taken, and dropped.
  Status status = Status::kOk;
  static_cast<void>(engine_.receive_for_program(id, {}, nullptr, status));
  if (is_possible)
    has_lost_ = news_.messages = true;
  else
    drop(sender);
  return true;
}

/// Without memory in the engine it is tried again: the sender waits for it.
void ModuleRunner::receive(MessageId id, Transfer& transfer) noexcept {
  Arrival& arrival = *transfer.arrival;
  Status status = Status::kOk;
  const Progressed progressed =
      engine_.receive_for_program(id, payload_of(transfer, arrival.message->whole()), &transfer, status);
  if (progressed == Progressed::kPending) return;
  if (progressed == Progressed::kFailed && status == Status::kNoMemory) {
    stuck_ = &transfer;
    stuck_id_ = id;
    news_.messages = true;
    return;
  }
  const std::uint32_t sender = transfer.sender;
  transfers_.erase(transfer.place);
  try {
    arrived(sender, arrival, status);
  } catch (const std::bad_alloc&) {
    has_lost_ = news_.messages = true;  // It waits for the sender's next message.
  }
}

/// A sender whose first message is here has its turns.
void ModuleRunner::arrived(std::uint32_t sender, Arrival& arrival, Status status) {
  arrival.is_here = true;
  arrival.status = status;
  Sender& its = senders_[sender];
  if (its.is_ready || !its.arrivals.front().is_here) return;
  ready_.push_back(sender);
  its.is_ready = true;
}

void ModuleRunner::drop(PeerId sender) {
  if (has_dropped_) return;
  has_dropped_ = true;
  warn("",
       "a message came from process " + std::to_string(index_of(sender)) +
           " for a group that is not open here, or that makes no sense. It was dropped, as others will be");
}

/// Whether something may begin now. Else there are news still. Time that was not used is saved up to a bound.
bool ModuleRunner::may_begin() noexcept {
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t earned_ns = (now - looked_ns_) * budgets_.time_percent / 100;
  saved_ns_ = std::min(kMostSavedNs, saved_ns_ + static_cast<std::int64_t>(earned_ns));
  looked_ns_ = now;
  // Without modules all is refused, which takes next to nothing.
  const bool has_time = saved_ns_ > 0 || budgets_.time_percent == 0;
  if (has_time && spent_ns_ < kMostSpentNs) return true;
  news_.messages = true;
  return false;
}

/// What began then is over.
void ModuleRunner::spend() noexcept {
  const std::uint64_t began = std::exchange(looked_ns_, monotonic_ns());
  spent_ns_ += looked_ns_ - began;
  saved_ns_ -= static_cast<std::int64_t>(looked_ns_ - began);
}

std::size_t ModuleRunner::handle_arrivals() {
  std::size_t handled = 0;
  while (!ready_.empty() && handled < kMostHandled && may_begin()) {
    const std::uint32_t sender = ready_.front();
    const auto place = senders_.find(sender);
    Sender& its = place->second;
    const Arrival arrival = std::move(its.arrivals.front());
    its.arrivals.pop_front();
    ready_.pop_front();
    its.is_ready = false;
    arriving_bytes_ -= arrival.message->whole().size() + kArrivalBytes;
    if (its.arrivals.empty())
      senders_.erase(place);
    else if (its.arrivals.front().is_here)
      arrived(sender, its.arrivals.front(), its.arrivals.front().status);
    ++handled;
    try {
      handle(PeerId{sender}, arrival);
    } catch (const std::bad_alloc&) {
      has_lost_ = true;
    }
    spend();
  }
  // What waits here is handled in the next turn, and what waits in the engine is taken when there is room for
  // it.
  if (handled > 0) news_.messages = true;
  return handled;
}

void ModuleRunner::handle(PeerId sender, const Arrival& arrival) {
  if (arrival.status != Status::kOk) return;  // Its sender has died.
  ModuleMessage& message = *arrival.message;
  const ModuleHeader& header = message.header();
  const bool is_own = sender == engine_.self();
  if (header.is_sound() && header.kind > ModuleMessageKind::kTrouble && is_own) return handle_own(message);
  const auto found = groups_.find(header.group);
  const bool is_sound = header.is_sound() && header.kind <= ModuleMessageKind::kTrouble &&
                        found != groups_.end() && header.source < found->second.size &&
                        header.root < found->second.size && found->second.peer_of(header.source) == sender &&
                        header.tag <= INT32_MAX && is_module_name(header.name_text());
  if (!is_sound) return drop(sender);
  if (header.kind == ModuleMessageKind::kTrouble) return handle_trouble(found->second, message);
  handle_data(found->second, arrival.message);
}

void ModuleRunner::handle_data(Group& group, std::shared_ptr<ModuleMessage> message) {
  const std::uint32_t id = message->header().group;
  const std::string name(message->header().name_text());
  const auto found = group.modules.find(name);
  if (found == group.modules.end()) return missing(group, id, name);
  Loaded& loaded = found->second;
  if (!loaded.stopped.empty()) return;  // All were told.
  ModuleOutput output;
  std::string error;
  const bool is_good = loaded.module->activate(std::move(message), output, error);
  act(group, id, name, output, is_good, error);
}

/// Does what an activation wants done, or stops the module that has failed.
void ModuleRunner::act(Group& group, std::uint32_t id, const std::string& name, ModuleOutput& output,
                       bool is_good, const std::string& error) {
  timers_changed_ = true;
  show_lines(name, output.lines);
  if (!is_good) return stop(group, id, name, error);
  for (ModuleOutput::Sent& sent : output.sends) {
    sent.message->address(id, group.rank, name);
    const PeerId peer = group.peer_of(sent.rank);
    departures_.push_back({std::move(sent.message), Leaving::kForModule, peer, kProgramKey, id, sent.rank});
  }
  for (std::shared_ptr<ModuleMessage>& one : output.deliveries) {
    const ModuleHeader& header = one->header();
    const MatchKey key{group.data_bits | header.tag, header.root};
    departures_.push_back({std::move(one), Leaving::kForHost, engine_.self(), key, id, group.rank});
  }
}

// Timers.

/// Of the modules that run.
ModuleRunner::Due ModuleRunner::first_due() noexcept {
  Due first;
  for (auto& [id, group] : groups_)
    for (auto& [name, loaded] : group.modules)
      if (loaded.module != nullptr && loaded.stopped.empty() && loaded.module->due_ns() < first.ns)
        first = {loaded.module->due_ns(), id, &group, &name, loaded.module.get()};
  return first;
}

std::size_t ModuleRunner::fire_timers() {
  std::size_t fired = 0;
  if (news_.timers && next_due_ns() == 0) {
    const std::uint64_t now = monotonic_ns();
    for (Due due = first_due(); due.ns <= now && may_begin(); due = first_due()) {
      ModuleOutput output;
      std::string error;
      const bool is_good = due.module->fire(output, error);
      act(*due.group, due.id, *due.name, output, is_good, error);
      ++fired;
      spend();
    }
  }
  return fired;
}

/// After something was activated, loaded or ended.
void ModuleRunner::note_timers() noexcept {
  due_ns_ = first_due().ns;
  news_.timers = due_ns_ != UINT64_MAX;
}

// Messages out.

std::size_t ModuleRunner::leave() {
  std::size_t left = 0;
  for (; !departures_.empty(); ++left) {
    Transfer& transfer = transfers_.emplace_back();
    transfer.place = std::prev(transfers_.end());
    transfer.departure = departures_.front();
    const Departure& one = transfer.departure;
    // A trouble ends when the client takes it.
    const SendMode mode = one.kind == Leaving::kTrouble ? SendMode::kSynchronous : SendMode::kStandard;
    const auto bytes = one.kind == Leaving::kForModule ? one.message->whole() : one.message->payload();
    Status status = Status::kOk;
    const Progressed progressed =
        engine_.send_for_program(one.peer, mode, one.key, payload_of(transfer, bytes), &transfer, status);
    if (progressed == Progressed::kFailed && status == Status::kNoMemory) {
      transfers_.pop_back();
      news_.messages = true;
      break;
    }
    if (progressed != Progressed::kPending) transfers_.pop_back();
    const Departure gone = std::move(departures_.front());
    departures_.pop_front();
    const auto group = groups_.find(gone.group);
    if (group == groups_.end() || progressed == Progressed::kPending) continue;
    if (gone.kind == Leaving::kTrouble && group->second.troubles > 0) --group->second.troubles;
    if (gone.kind == Leaving::kForModule && progressed == Progressed::kFailed)
      tell_trouble(group->second, group->first, has_failed(gone.rank));
  }
  return left;
}

/// To the client, under a key of its control messages.
void ModuleRunner::answer(const MatchKey& key, std::string_view text) {
  departures_.push_back({make(text), Leaving::kForHost, engine_.self(), key, 0, 0});
}

// The client's own messages.

void ModuleRunner::handle_own(ModuleMessage& message) {
  timers_changed_ = true;
  const ModuleHeader& header = message.header();
  if (header.kind == ModuleMessageKind::kOpen) return open(message);
  const auto found = groups_.find(header.group);
  if (found == groups_.end()) return warn("", "a request came for a group that is not open");
  Group& group = found->second;
  const MatchKey key{group.control_bits | header.tag, group.rank};
  const std::string name(header.name_text());
  std::string text;
  switch (header.kind) {
    case ModuleMessageKind::kClose:
      members_ -= group.peers.size();
      groups_.erase(found);
      break;
    case ModuleMessageKind::kLoad: text = load(group, name, message.text()); break;
    case ModuleMessageKind::kRemove:
      if (group.modules.erase(name) == 0) text = "there is no such module";
      break;
    default: text = list(group); break;
  }
  answer(key, text);
}

/// Returns what is wrong, or "". A text that cannot be loaded leaves the former module as it is.
std::string ModuleRunner::load(Group& group, const std::string& name, std::string_view source) {
  if (budgets_.time_percent == 0) return "modules have no time: MPIR_CVAR_CH3_OFFLOAD_MODULE_SHARE is 0";
  if (!group.modules.contains(name) && modules() >= kMostModules)
    return "there are " + std::to_string(kMostModules) + " modules already: remove one";
  std::string problem;
  std::unique_ptr<Module> module = Module::load(name, source, {group.rank, group.size}, budgets_, problem);
  if (module == nullptr) return as_line(problem);
  group.modules[name] = {std::move(module), ""};
  group.absent.erase(name);
  return "";
}

void ModuleRunner::open(ModuleMessage& message) {
  ModuleOpening opening;
  const auto payload = message.payload();
  if (payload.size() < sizeof opening) return warn("", "a group was opened without its members");
  std::memcpy(&opening, payload.data(), sizeof opening);
  const auto numbers = payload.subspan(sizeof opening);
  const MatchKey key{opening.control_bits | message.header().tag, opening.rank};
  const bool is_sound = opening.rank < opening.size && opening.size <= processes_ &&
                        numbers.size() == opening.peer_count * sizeof(std::uint32_t) &&
                        (opening.peer_count == 0 || opening.peer_count == opening.size);
  if (!is_sound || groups_.contains(message.header().group)) return answer(key, "its numbers make no sense");
  if (groups_.size() >= kMostGroups || opening.peer_count > kMostMembers - members_)
    return answer(key, "there are too many groups");
  Group group;
  group.rank = opening.rank;
  group.size = opening.size;
  group.data_bits = opening.data_bits;
  group.control_bits = opening.control_bits;
  group.peers.resize(opening.peer_count);
  if (!numbers.empty()) std::memcpy(group.peers.data(), numbers.data(), numbers.size());
  if (std::ranges::any_of(group.peers, [&](std::uint32_t peer) { return peer >= processes_; }))
    return answer(key, "its processes are not there");
  groups_.emplace(message.header().group, std::move(group));
  members_ += opening.peer_count;
  answer(key, "");
}

std::string ModuleRunner::list(const Group& group) {
  std::string text;
  for (const auto& [name, loaded] : group.modules) {
    text += name + '\t';
    if (loaded.module == nullptr) {
      text += "stopped\t" + loaded.stopped + '\n';
      continue;
    }
    const ModuleUse use = loaded.module->use();
    text += "runs\t" + std::to_string(use.activations) + " activations, " + std::to_string(use.instructions) +
            " instructions, " + std::to_string(use.sends) + " sends, " + std::to_string(use.memory_bytes) +
            " bytes\n";
  }
  return text;
}

}  // namespace ch3_offload
