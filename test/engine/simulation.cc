// The world: making it, moving it, bringing it to rest, draining it.

#include "engine/simulation.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "engine/wire.h"
#include "nic/host_driver.h"
#include "nic/stepped_rings.h"

namespace ch3_offload {

namespace {
constexpr std::size_t kLogLines = 1024;
constexpr std::size_t kTraceEvents = 4096;
constexpr std::size_t kMostAccounts = 16;  ///< Processes whose books are compared at each step.
/// The trace's clock is a plain function: the network whose time it tells.
const FakeNetwork* traced_network = nullptr;
}  // namespace

std::uint64_t Simulation::clock() noexcept { return traced_network->now_ns(); }

void Simulation::make_nodes() {
  for (std::uint32_t i = 0; i < config_.nodes; ++i) {
    Node& node = nodes_.emplace_back();
    node.network = network_.make_provider(PeerId{i});
    node.checked = with_checksums(*node.network);
    Provider* const network = node.checked != nullptr ? node.checked.get() : static_cast<Provider*>(node.network.get());
    node.exchange = std::make_unique<Exchange>(PeerId{i}, config_.processes, network);
  }
}

std::unique_ptr<CheckedProvider> Simulation::with_checksums(FakeProvider& provider) {
  if (!config_.has_checksums) return nullptr;
  return std::make_unique<CheckedProvider>(provider, Log(nullptr, nullptr));
}

/// Whether nothing waits to be sent again.
bool Simulation::is_settled() const {
  for (const Node& node : nodes_)
    if (node.exchange != nullptr && node.checked != nullptr && !node.checked->is_settled()) return false;
  for (const auto& process : processes_)
    if (process->alive && process->checked != nullptr && !process->checked->is_settled()) return false;
  return true;
}

std::uint64_t Simulation::found_damaged() const {
  std::uint64_t found = 0;
  for (const Node& node : nodes_)
    if (node.checked != nullptr) found += node.checked->counters().damaged;
  for (const auto& process : processes_)
    if (process->checked != nullptr) found += process->checked->counters().damaged;
  return found;
}

void Simulation::make_engine(Process& process, const EngineConfig& engine) {
  const std::uint64_t seed = config_.seed + process.id;
  if (config_.driver == SimulatedDriver::kProcess) {
    process.exchange = node_of(process.id).exchange->attach(PeerId{process.id});
    process.memory = std::make_unique<OtherProcess>(config_.processes, *process.exchange, config_.copies);
    process.memory->staging = config_.staging;
    process.memory->failed_copies = config_.refused_copies;
    process.memory->memory.offers().configure(Simulation::clock, config_.engine.eager_limit_bytes);
    RefusingCopier& kernel = process.memory->kernel;
    kernel.random = SeededRandom(seed);
    kernel.chance = config_.refused_copies;
    kernel.allowed = static_cast<int>(kernel.random.below(200));
    kernel.error = kernel.random.chance(0.3) ? EPERM : EFAULT;
    Provider* const providers[] = {process.exchange.get()};
    EngineConfig its = engine;
    its.landing_numbers = process.exchange->landing_numbers();
    process.engine = std::make_unique<SteppedRings>(its, providers, seed, process.memory.get());
    process.shared.arena = process.engine->arena();
    return;
  }
  process.provider = network_.make_provider(PeerId{process.id});
  process.checked = with_checksums(*process.provider);
  Provider* const providers[] = {process.checked != nullptr ? process.checked.get() : static_cast<Provider*>(process.provider.get())};
  if (config_.has_rings())
    process.engine = std::make_unique<SteppedRings>(engine, providers, seed);
  else
    process.engine = std::make_unique<HostDriver>(engine, providers);
}

Simulation::Simulation(const SimulationConfig& config)
    : config_(config),
      random_(config.seed),
      memory_random_(config.seed + 1),
      network_(config.network),
      oracle_(config.processes, config.engine.always_ignored, config.engine.channel_bits),
      next_number_(std::size_t{config.processes} * config.processes),
      log_(kLogLines) {
  traced_network = &network_;
  arena_.on_free = [this](const std::byte* address, std::size_t length_bytes) { unmap(address, length_bytes); };
  if (config.driver == SimulatedDriver::kProcess) make_nodes();
  const char* const trace_folder = std::getenv("CH3_OFFLOAD_SIM_TRACE");
  for (std::uint32_t i = 0; i < config.processes; ++i) {
    auto process = std::make_unique<Process>(*this, i);
    EngineConfig engine = config.engine;
    engine.self = PeerId{i};
    if (trace_folder != nullptr) {
      process->trace = std::make_unique<Trace>(PeerId{i}, config.processes, kTraceEvents, &Simulation::clock);
      engine.trace = process->trace.get();
    }
    make_engine(*process, engine);
    process->told_failed.resize(config.processes);
    process->packet_bytes_out.resize(config.processes);
    process->packet_bytes_in.resize(config.processes);
    cards_.push_back(process->engine->card());
    processes_.push_back(std::move(process));
  }
}

Simulation::~Simulation() {
  // What is still in flight refers to the records' buffers: first the network forgets its users.
  for (auto& process : processes_) {
    if (process->alive && process->provider != nullptr) network_.kill(PeerId{process->id});
    process->shared.arena = nullptr;
    process->engine.reset();
    process->exchange.reset();
    process->checked.reset();
    process->provider.reset();
  }
  for (Node& node : nodes_) {
    node.exchange.reset();
    node.checked.reset();
  }
  for (auto& process : processes_) process->places.clear();  // unmap() visits them all.
}

/// A program frees a buffer: malloc keeps its pages, or gives them back to the system.
void Simulation::unmap(const std::byte* address, std::size_t length_bytes) {
  if (!memory_random_.chance(config_.unmap_probability)) return;
  for (const auto& process : processes_) {
    if (process->engine == nullptr || process->provider == nullptr) continue;
    // As ch3_offload::Channel does: where the provider need not be told, nobody watches.
    if (process->engine->keeps_memory()) process->engine->memory_gone(address, length_bytes);
    process->provider->memory_gone(address, length_bytes);
  }
}

void Simulation::log(const char* what, std::uint32_t process, std::uint32_t peer, std::uint64_t first,
                     std::uint64_t second) {
  log_[logged_++ % kLogLines] = {network_.now_ns(), what, process, peer, first, second};
}

std::string Simulation::report() const {
  std::ostringstream text;
  text << config_.describe() << "\nreplay: test/simulation_tests --seeds " << config_.seed << ".." << config_.seed
       << " --operations " << config_.operations << " --gtest_filter="
       << (config_.driver == SimulatedDriver::kHost    ? "*ProgramsObey*\n"
           : config_.driver == SimulatedDriver::kRings ? "*BehindRings*\n"
                                                       : "*InAProcess*\n");
  const std::uint64_t lines = std::min<std::uint64_t>({logged_, kLogLines, 60});
  text << "the last " << lines << " events (time ns: process, peer, event, two numbers):\n";
  for (std::uint64_t i = logged_ - lines; i < logged_; ++i) {
    const LogLine& line = log_[i % kLogLines];
    text << "  " << line.time_ns << ": " << line.process << " " << static_cast<std::int32_t>(line.peer) << " "
         << line.what << " " << line.first << " " << std::hex << line.second << std::dec << "\n";
  }
  for (const std::string& what : oracle_.failures()) text << "FAILED " << what << "\n";
  for (const std::string& what : network_.violations()) text << "FAILED contract: " << what << "\n";
  if (const char* const folder = std::getenv("CH3_OFFLOAD_SIM_TRACE")) {
    for (const auto& process : processes_) {
      const std::string path = std::string(folder) + "/seed-" + std::to_string(config_.seed) + "." +
                               std::to_string(process->id) + ".trace";
      if (process->trace->write(path) == 0) text << "trace: " << path << "\n";
    }
  }
  return text.str();
}

void add(Counters& sum, const Counters& each) {
  sum.sent_short += each.sent_short;
  sum.sent_eager += each.sent_eager;
  sum.sent_rendezvous += each.sent_rendezvous;
  sum.sent_optimistic += each.sent_optimistic;
  sum.sent_buffered += each.sent_buffered;
  sum.bulk_written += each.bulk_written;
  sum.bulk_bounced += each.bulk_bounced;
  sum.received_expected += each.received_expected;
  sum.received_unexpected += each.received_unexpected;
  sum.dropped_payloads += each.dropped_payloads;
  sum.credits_requested += each.credits_requested;
  sum.credit_messages += each.credit_messages;
  sum.packet_bytes_received += each.packet_bytes_received;
  sum.packet_bytes_placed += each.packet_bytes_placed;
  sum.cancelled_sends += each.cancelled_sends;
  sum.failed_peers += each.failed_peers;
  sum.connected_peers += each.connected_peers;
  sum.cards_wanted += each.cards_wanted;
  sum.pin_hits += each.pin_hits;
  sum.pin_misses += each.pin_misses;
  sum.pin_evictions += each.pin_evictions;
  sum.pin_invalidations += each.pin_invalidations;
  sum.pin_refused += each.pin_refused;
}

Counters Simulation::totals() const {
  Counters sum;
  for (const auto& process : processes_) {
    if (!process->alive) continue;
    add(sum, process->engine->counters());
  }
  return sum;
}

std::uint64_t Simulation::copied_by_receivers() const {
  std::uint64_t sum = 0;
  for (const auto& process : processes_)
    if (process->alive) sum += process->engine->ring_counters().client.copied;
  return sum;
}

bool Simulation::run() {
  std::uint64_t deaths = config_.deaths;
  std::uint64_t breaks = config_.broken_connections;
  const std::uint64_t phase = std::max<std::uint64_t>(config_.operations / 8, 200);
  while (commands_ < config_.operations && !failed()) {
    command(*choose_alive());
    while (random_.chance(config_.motion_probability)) step_motion();
    if (touched_.size() > 64) reap();
    // Deaths fall in the later part, when there is something to lose.
    if (deaths > 0 && commands_ > config_.operations / 3 && random_.below(config_.operations / 3 + 1) < 2) {
      --deaths;
      if (nodes_.size() > 1 && random_.chance(0.2))
        kill_node(node_of(choose_alive()->id));
      else
        kill(*choose_alive());
    }
    if (breaks > 0 && commands_ > config_.operations / 4 && random_.below(config_.operations / 3 + 1) < 2) {
      --breaks;
      break_connection(choose_alive()->id, choose_alive()->id);
    }
    if (random_.below(phase) == 0) {
      come_to_rest();
      check_at_rest();
    }
  }
  if (!failed()) drain();
  return !failed();
}

void Simulation::step_motion() {
  if (random_.chance(0.6)) {
    progress_once(*choose_alive());
  } else {
    network_.advance();
    if (!nodes_.empty() && random_.chance(0.7)) move_nodes();
  }
}

/// Each node's exchange has a turn. Whether anything moved.
bool Simulation::move_nodes() {
  bool moved = false;
  for (const Node& node : nodes_) moved |= node.exchange != nullptr && node.exchange->poll() > 0;
  return moved;
}

bool Simulation::progress_once(Process& process) {
  ++depth_;
  const std::size_t happened = progress(*process.engine, process);
  --depth_;
  const Counters& counters = process.engine->counters();
  if (counters.unexpected_bytes_peak > config_.engine.unexpected_budget_bytes) {
    fail("process " + std::to_string(process.id) + " keeps " + std::to_string(counters.unexpected_bytes_peak) +
         " bytes of unexpected messages, over its budget");
  }
  // Beyond the budget there are only envelopes, and no more than there are sends that are not done.
  const bool all_live = config_.deaths == 0 && config_.broken_connections == 0;
  if (all_live && processes_.size() <= kMostAccounts) {
    std::uint64_t announced = 0;
    std::uint64_t pending = 0;
    for (const auto& each : processes_) {
      announced += each->engine->counters().unexpected_announced;
      pending += each->engine->counters().pending_sends;
    }
    if (announced > pending) {
      fail(std::to_string(announced) + " envelopes are kept for " + std::to_string(pending) + " sends");
    }
  }
  if (counters.lent_bytes > config_.engine.unexpected_budget_bytes) {
    fail("process " + std::to_string(process.id) + " has lent " + std::to_string(counters.lent_bytes) +
         " bytes, over its budget");
  }
  return happened > 0;
}

/// Until nothing is in flight and no engine has anything to do. Refusals at random (kAgain) may make an
/// engine wait without an event, so idle() decides, with a bound.
void Simulation::come_to_rest() {
  constexpr int kPatience = 2000;
  const bool was_calm = calm_;
  calm_ = true;
  for (int quiet = 0; quiet < kPatience && !failed();) {
    bool moved = network_.advance();
    moved |= move_nodes();
    bool idle = is_settled();
    for (auto& process : processes_) {
      if (!process->alive) continue;
      moved |= progress_once(*process);
      idle &= process->engine->idle();
    }
    quiet = moved ? 0 : quiet + 1;
    // A send that nobody receives may keep an engine from being idle for good.
    if (quiet >= 3 && idle) break;
    if (quiet >= 300 && network_.quiet() && is_settled()) break;
  }
  calm_ = was_calm;
  reap();
}

void Simulation::check_at_rest() {
  if (failed()) return;
  oracle_.check_at_rest();
  for (const auto& record : records_) {
    if (record->done || !processes_[record->owner]->alive) continue;
    const std::string who = " of process " + std::to_string(record->owner);
    if (record->kind == Record::Kind::kPacket) fail("all is at rest and a packet" + who + " is not sent");
    if (record->kind == Record::Kind::kCancel) fail("all is at rest and a cancel" + who + " is undecided");
    if (record->kind == Record::Kind::kReceive && static_cast<ReceiveRecord&>(*record).taken != nullptr) {
      fail("all is at rest and a receive of a probed message" + who + " is not done");
    }
    if (record->kind != Record::Kind::kSend) continue;
    const auto& send = static_cast<SendRecord&>(*record);
    if (oracle_.is_lost(send.from, send.to)) {
      fail("all is at rest and a send to a lost process is not done: #" + std::to_string(send.seed));
    } else if (send.state == SentMessage::State::kReceived) {
      fail("all is at rest, a message was received and its send is not done: #" + std::to_string(send.seed));
    }
  }
  for (auto& process : processes_) {
    if (!process->alive) continue;
    if (process->memory != nullptr && process->memory->memory.is_broken())
      fail("process " + std::to_string(process->id) + " is broken: " + process->memory->memory.reason());
    const Counters& counters = process->engine->counters();
    std::size_t waiting = 0;
    bool exact = true;
    for (auto& sender : processes_) {
      for (const SentMessage* message : oracle_.waiting(sender->id, process->id)) {
        ++waiting;
        exact &= !message->maybe_purged && !oracle_.is_lost(sender->id, process->id);
      }
      if (!oracle_.is_lost(sender->id, process->id) && sender->alive &&
          sender->packet_bytes_out[process->id] != process->packet_bytes_in[sender->id]) {
        fail("all is at rest and packet bytes are missing");
      }
    }
    if (counters.posted_depth != oracle_.posted_at(process->id).size()) {
      fail("process " + std::to_string(process->id) + " has " + std::to_string(counters.posted_depth) +
           " receives posted, should be " + std::to_string(oracle_.posted_at(process->id).size()));
    }
    if (exact ? counters.unexpected_depth != waiting : counters.unexpected_depth > waiting) {
      fail("process " + std::to_string(process->id) + " has " + std::to_string(counters.unexpected_depth) +
           " unexpected messages, should be " + (exact ? "" : "at most ") + std::to_string(waiting));
    }
    // Who keeps more than an envelope has paid for it.
    const std::uint64_t paid =
        counters.unexpected_depth - std::min(counters.unexpected_depth, counters.unexpected_announced);
    if (paid * wire::kEnvelopeBytes > counters.unexpected_bytes) {
      fail("process " + std::to_string(process->id) + " keeps " + std::to_string(paid) + " messages and counts only " +
           std::to_string(counters.unexpected_bytes) + " bytes");
    }
    check_probe_at_rest(*process);
  }
}

/// At rest a probe's answer is known, both ways.
void Simulation::check_probe_at_rest(Process& process) {
  MatchKey key{};
  MatchKey ignore{};
  std::size_t capacity = 0;
  choose_request(process, key, ignore, capacity);
  bool sure = false;
  bool possible = false;
  for (auto& sender : processes_) {
    for (const SentMessage* message : oracle_.waiting(sender->id, process.id)) {
      if (!oracle_.match(*message, key, ignore)) continue;
      possible = true;
      sure |= !message->maybe_purged && !oracle_.is_lost(sender->id, process.id);
    }
  }
  Envelope envelope;
  const bool found = process.engine->probe(key, ignore, envelope);
  if (found && !possible) fail("a probe found a message that does not exist");
  if (!found && sure) fail("all is at rest and a probe did not find the message that waits");
}

bool Simulation::finished_with(const Record& record) const {
  if (!record.done) return false;
  if (record.kind != Record::Kind::kSend) return true;
  const auto& send = static_cast<const SendRecord&>(record);
  return !send.cancelling && Oracle::may_forget(send);
}

void Simulation::touch(Record& record) {
  if (record.touched) return;
  record.touched = true;
  touched_.push_back(&record);
}

/// Frees records that nobody can ask about any more. Only between commands.
void Simulation::reap() {
  for (Record* record : touched_) {
    record->touched = false;
    if (!finished_with(*record)) continue;
    live_.erase(record);
    for (const auto& other : records_) {
      if (other->kind != Record::Kind::kReceive) continue;
      // Behind rings it may be cancelled first.
      auto& expects = static_cast<ReceiveRecord&>(*other).expected;
      if (expects == record) expects = nullptr;
    }
    if (record->kind == Record::Kind::kReceive) check_given_back(static_cast<ReceiveRecord&>(*record));
    const std::size_t index = record->index;
    if (index + 1 != records_.size()) {
      std::swap(records_[index], records_.back());
      records_[index]->index = index;
    }
    records_.pop_back();
  }
  touched_.clear();
}

/// A receive that failed: nobody wrote into its buffer after that.
void Simulation::check_given_back(const ReceiveRecord& receive) {
  if (receive.buffer == nullptr) return;
  if (const std::string wrong = receive.buffer->check_scribbled(); !wrong.empty()) fail("failed receive: " + wrong);
}

/// Receives everything that waits, so that all must come to an end.
void Simulation::drain() {
  calm_ = true;
  come_to_rest();
  check_at_rest();
  for (auto& process : processes_) {
    if (!process->alive) continue;
    while (!process->taken.empty() && !failed()) command_receive_matched(*process);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      auto* const receive = dynamic_cast<ReceiveRecord*>(records_[i].get());
      if (receive == nullptr || receive->done || receive->owner != process->id || receive->taken != nullptr) continue;
      if (!process->engine->cancel_receive(receive->operation)) {
        fail("all is at rest and a receive that matched nothing cannot be cancelled");
      } else {
        receive_returned(*receive);
      }
    }
  }
  reap();
  for (int round = 0; round < 100'000 && !failed(); ++round) {
    bool waits = false;
    for (auto& process : processes_) {
      Envelope waiting;  // The answer comes after all commands before it.
      if (!process->alive || !process->engine->probe({}, ~MatchKey{}, waiting)) continue;
      waits = true;
      post(*process, random_mask(), ~MatchKey{}, config_.numbered ? choose_length() : config_.longest_bytes,
           nullptr);
    }
    if (!waits) {
      come_to_rest();
      bool more = false;
      for (auto& process : processes_) more |= process->alive && process->engine->counters().unexpected_depth > 0;
      if (!more) break;
    }
    step_motion();
    if (touched_.size() > 64) reap();
  }
  if (!failed()) check_end();
}

void Simulation::check_end() {
  come_to_rest();
  check_at_rest();
  if (!is_settled()) fail("at the end something waits to be acknowledged, or to be sent again");
  for (auto& process : processes_) {
    if (!process->alive) continue;
    const std::string who = "at the end process " + std::to_string(process->id);
    const Counters& counters = process->engine->counters();
    if (!process->engine->idle()) fail(who + " is not idle");
    if (counters.unexpected_bytes != 0) fail(who + " counts " + std::to_string(counters.unexpected_bytes) + " unexpected bytes");
    if (counters.unexpected_depth != 0) fail(who + " has unexpected messages");
    if (counters.posted_depth != 0) fail(who + " has posted receives");
    if (process->provider == nullptr) continue;
    if (config_.network.registering_costs && counters.pinned_regions != process->provider->regions())
      fail(who + " does not know what is registered");
    process->engine->stop_keeping_memory();
    if (process->provider->regions() != 0) fail(who + " has registered regions that nobody uses");
  }
  for (const auto& record : records_) {
    if (!processes_[record->owner]->alive) continue;
    const bool send = record->kind == Record::Kind::kSend;
    const auto* const message = send ? static_cast<const SendRecord*>(record.get()) : nullptr;
    if (!record->done) fail("at the end an operation of process " + std::to_string(record->owner) + " is not done");
    if (send && message->state == SentMessage::State::kWaiting && !message->maybe_purged &&
        !oracle_.is_lost(message->from, message->to)) {
      fail("at the end a message was not received: #" + std::to_string(message->seed));
    }
  }
}

}  // namespace ch3_offload
