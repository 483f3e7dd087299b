// Processes that leave random collective operations to their processors, and an oracle that knows each
// result.
//
// A seed chooses the operations, their algorithms, lengths and types, when each member begins, and the turns
// of processors and network. It may choose a process that dies. The members of an operation have the same
// program, as MPI asks. Several operations are under way at once, beside messages of the clients themselves.
//
// Threads: one.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nic/exchange.h"
#include "nic/stepped_rings.h"
#include "rdma/fake_provider.h"
#include "rdma/seeded_random.h"

namespace ch3_offload {

class ScheduleWorld {
 public:
  enum class Driver : std::uint8_t { kThread, kProcess };
  struct Config {
    Driver driver = Driver::kThread;
    std::uint64_t seed = 1;
    std::uint32_t processes = 5;
    std::size_t operations = 12;
    bool one_dies = false;
  };
  /// In the tags of members that have seen a failure, as MPICH has them.
  static constexpr ScheduleMarks kMarks{0x4000'0000, 0x6000'0000};

  explicit ScheduleWorld(const Config& config)
      : config_(config), random_(config.seed), network_(fake(config)) {
    if (config.driver == Driver::kProcess)
      exchange_ = std::make_unique<Exchange>(PeerId{0}, config.processes, nullptr);
    for (std::uint32_t i = 0; i < config.processes; ++i) make_process(i);
    for (std::size_t i = 0; i < config.operations; ++i) plan(i);
    if (config.one_dies) dies_at_ = random_.below(400);
  }
  ~ScheduleWorld() {
    for (std::uint32_t i = 0; i < config_.processes; ++i) end_process(i);
    if (exchange_ != nullptr) exchange_.reset();
  }
  ScheduleWorld(const ScheduleWorld&) = delete;
  ScheduleWorld& operator=(const ScheduleWorld&) = delete;

  /// Empty: each operation has ended at each living member, and with the right result where it said so.
  std::string run() {
    for (std::uint64_t turn = 0; turn < kMostTurns; ++turn) {
      if (dies_at_ == turn) kill();
      bool is_over = true;
      for (auto& process : processes_) {
        if (!process->is_alive) continue;
        begin_some(*process);
        process->port->progress();
        take_events(*process);
        is_over = is_over && process->ended == plans_.size() && process->messages_due == 0;
      }
      if (exchange_ != nullptr) exchange_->poll();
      network_.advance();
      if (is_over && (!config_.one_dies || dies_at_ < turn)) return judge();
      if (!mistake_.empty()) return mistake_;
    }
    std::string left = "it does not come to its end:";
    for (const auto& process : processes_)
      left += " " + std::to_string(process->ended) + (process->messages_due > 0 ? "m" : "") +
              (process->is_alive ? "" : "dead");
    return left;
  }

  std::uint64_t failed() const noexcept { return failed_; }
  std::uint64_t succeeded() const noexcept { return succeeded_; }

 private:
  static constexpr std::uint64_t kMostTurns = 60'000;
  enum class Kind : std::uint8_t { kBarrier, kBroadcast, kReduceAndBroadcast, kRing, kAllToAll, kEnd };
  struct Plan {
    Kind kind{};
    std::uint32_t root = 0;
    std::size_t elements = 0;  ///< Of 8 bytes, of each member.
    AtomicOperation operation{};
    AtomicType type{};
  };
  /// One operation at one member.
  struct Part {
    std::vector<std::uint64_t> own, result, room;
    std::vector<ScheduleStep> steps;
    std::optional<Status> status;
    std::uint32_t process = 0;
    bool has_begun = false;
  };
  struct Process {
    std::uint32_t id = 0;
    bool is_alive = true;
    std::unique_ptr<FakeProvider> provider;
    std::unique_ptr<ExchangePort> outlet;
    std::unique_ptr<OtherProcess> memory;
    std::unique_ptr<SteppedRings> port;
    std::vector<std::unique_ptr<Part>> parts;
    std::size_t begun = 0, ended = 0;
    std::uint64_t sent = 1, received = 0;  ///< The message of its own to its right, and from its left.
    int messages_due = 0;
  };

  static FakeConfig fake(const Config& config) {
    FakeConfig fake;
    fake.seed = config.seed;
    fake.slots_per_pair = 8;
    fake.again_probability = 0.1;
    fake.slow_probability = 0.05;
    return fake;
  }
  std::uint32_t size() const noexcept { return config_.processes; }

  void make_process(std::uint32_t id) {
    auto process = std::make_unique<Process>();
    process->id = id;
    EngineConfig engine;
    engine.self = PeerId{id};
    engine.senders = size();
    engine.eager_limit_bytes = 2048;
    engine.always_ignored = {kMarks.peer_failed, 0};
    engine.self_copy_bytes = 1024;
    Provider* provider = nullptr;
    if (config_.driver == Driver::kProcess) {
      process->outlet = exchange_->attach(PeerId{id});
      process->memory = std::make_unique<OtherProcess>(size(), *process->outlet);
      engine.landing_numbers = process->outlet->landing_numbers();
      provider = process->outlet.get();
    } else {
      process->provider = network_.make_provider(PeerId{id});
      provider = process->provider.get();
    }
    Provider* const providers[] = {provider};
    process->port =
        std::make_unique<SteppedRings>(engine, providers, config_.seed + id, process->memory.get());
    cards_.push_back(process->port->card());
    processes_.push_back(std::move(process));
  }
  void end_process(std::uint32_t id) {
    Process& process = *processes_[id];
    if (process.provider != nullptr && process.is_alive) network_.kill(PeerId{id});
    process.port.reset();
    process.outlet.reset();
    process.provider.reset();
  }

  void plan(std::size_t index) {
    Plan plan;
    plan.kind = static_cast<Kind>(random_.below(static_cast<std::uint64_t>(Kind::kEnd)));
    plan.root = static_cast<std::uint32_t>(random_.below(size()));
    constexpr std::array<std::size_t, 5> kLengths = {0, 1, 60, 700, 9000};
    plan.elements = kLengths[random_.below(kLengths.size())];
    plan.type = random_.chance(0.5) ? AtomicType::kUint64 : AtomicType::kInt64;
    constexpr std::array kOperations = {AtomicOperation::kSum, AtomicOperation::kMax,
                                        AtomicOperation::kBitXor, AtomicOperation::kProduct};
    plan.operation = kOperations[random_.below(kOperations.size())];
    plans_.push_back(plan);
    for (auto& process : processes_) process->parts.push_back(make_part(plan, index, process->id));
  }
  static std::uint64_t element(std::size_t index, std::uint32_t member, std::size_t i) noexcept {
    return (index + 1) * 1'000'003 + member * 7919 + i * 31;
  }

  // Steps, as MPICH's algorithms make them.

  std::unique_ptr<Part> make_part(const Plan& plan, std::size_t index, std::uint32_t self) {
    auto part = std::make_unique<Part>();
    part->process = self;
    part->own.resize(plan.elements);
    for (std::size_t i = 0; i < plan.elements; ++i) part->own[i] = element(index, self, i);
    const auto tag = static_cast<std::uint32_t>(index);
    switch (plan.kind) {
      case Kind::kBarrier: barrier(*part, self, tag); break;
      case Kind::kBroadcast:
        part->result = self == plan.root ? part->own : std::vector<std::uint64_t>(plan.elements);
        broadcast(*part, self, plan.root, tag);
        break;
      case Kind::kReduceAndBroadcast:
        part->result.resize(plan.elements);
        part->room.resize(plan.elements);
        copy(*part, part->own.data(), part->result.data(), plan.elements);
        barrier_here(*part);
        reduce(*part, self, plan, tag);
        broadcast(*part, self, plan.root, tag);
        break;
      case Kind::kRing: ring(*part, self, plan.elements, tag); break;
      default: all_to_all(*part, self, plan.elements, tag); break;
    }
    return part;
  }
  static ScheduleStep message(StepKind kind, std::uint32_t peer, std::uint32_t sender, std::uint32_t tag) {
    ScheduleStep step;
    step.kind = kind;
    step.peer = peer;
    step.key = make_match_key(7, sender, tag);
    return step;
  }
  void send(Part& part, std::uint32_t self, std::uint32_t to, std::uint32_t tag, const std::uint64_t* from,
            std::size_t elements) {
    const bool is_synchronous = random_.chance(0.1);
    ScheduleStep step = message(is_synchronous ? StepKind::kSynchronousSend : StepKind::kSend, to, self, tag);
    step.from = reinterpret_cast<const std::byte*>(from);
    step.length_bytes = elements * 8;
    part.steps.push_back(step);
  }
  static void receive(Part& part, std::uint32_t from, std::uint32_t tag, std::uint64_t* to,
                      std::size_t elements) {
    ScheduleStep step = message(StepKind::kReceive, from, from, tag);
    step.to = reinterpret_cast<std::byte*>(to);
    step.length_bytes = elements * 8;
    part.steps.push_back(step);
  }
  static void copy(Part& part, const std::uint64_t* from, std::uint64_t* to, std::size_t elements) {
    ScheduleStep step;
    step.kind = StepKind::kCopy;
    step.from = reinterpret_cast<const std::byte*>(from);
    step.to = reinterpret_cast<std::byte*>(to);
    step.length_bytes = elements * 8;
    part.steps.push_back(step);
  }
  static void barrier_here(Part& part) { part.steps.back().is_barrier = 1; }

  void barrier(Part& part, std::uint32_t self, std::uint32_t tag) {
    for (std::uint32_t distance = 1; distance < size(); distance *= 2) {
      receive(part, (self + size() - distance) % size(), tag, nullptr, 0);
      send(part, self, (self + distance) % size(), tag, nullptr, 0);
      barrier_here(part);
    }
  }
  void broadcast(Part& part, std::uint32_t self, std::uint32_t root, std::uint32_t tag) {
    const std::uint32_t relative = (self + size() - root) % size();
    const std::size_t elements = part.result.size();
    std::uint32_t mask = 1;
    for (; mask < size() && (relative & mask) == 0; mask *= 2) {
    }
    if (relative != 0) {
      receive(part, (self + size() - mask) % size(), tag, part.result.data(), elements);
      barrier_here(part);
      for (const StepKind kind : {StepKind::kCount, StepKind::kCountReceived, StepKind::kCheckCount}) {
        ScheduleStep step;
        step.kind = kind;
        step.length_bytes = kind == StepKind::kCheckCount ? elements * 8 : 0;
        part.steps.push_back(step);
      }
    }
    for (mask /= 2; mask > 0; mask /= 2)
      if (relative + mask < size())
        send(part, self, (self + mask) % size(), tag, part.result.data(), elements);
  }
  void reduce(Part& part, std::uint32_t self, const Plan& plan, std::uint32_t tag) {
    const std::uint32_t relative = (self + size() - plan.root) % size();
    for (std::uint32_t mask = 1; mask < size(); mask *= 2) {
      if ((relative & mask) != 0) {
        send(part, self, (self + size() - mask) % size(), tag, part.result.data(), plan.elements);
        barrier_here(part);
        return;
      }
      if (relative + mask >= size()) continue;
      receive(part, (self + mask) % size(), tag, part.room.data(), plan.elements);
      barrier_here(part);
      ScheduleStep step;
      step.kind = StepKind::kCombine;
      step.operation = plan.operation;
      step.type = plan.type;
      step.from = reinterpret_cast<const std::byte*>(part.room.data());
      step.to = reinterpret_cast<std::byte*>(part.result.data());
      step.length_bytes = plan.elements * 8;
      step.is_barrier = 1;
      part.steps.push_back(step);
    }
  }
  void ring(Part& part, std::uint32_t self, std::size_t elements, std::uint32_t tag) {
    part.result.resize(elements * size());
    const auto block = [&](std::uint32_t of) { return part.result.data() + of * elements; };
    copy(part, part.own.data(), block(self), elements);
    barrier_here(part);
    for (std::uint32_t i = 0; i + 1 < size(); ++i) {
      const std::uint32_t left = (self + size() - 1) % size();
      send(part, self, (self + 1) % size(), tag, block((self + size() - i) % size()), elements);
      receive(part, left, tag, block((self + 2 * size() - 1 - i) % size()), elements);
      barrier_here(part);
    }
  }
  void all_to_all(Part& part, std::uint32_t self, std::size_t elements, std::uint32_t tag) {
    part.result.resize(elements * size());
    // To itself, too.
    for (std::uint32_t i = 0; i < size(); ++i)
      receive(part, i, tag, part.result.data() + i * elements, elements);
    for (std::uint32_t i = 0; i < size(); ++i)
      send(part, self, (self + i) % size(), tag, part.own.data(), elements);
  }

  // Running.

  void begin_some(Process& process) {
    while (process.begun < plans_.size() && random_.chance(0.05)) {
      Part& part = *process.parts[process.begun++];
      part.has_begun = true;
      if (part.steps.empty())
        continue_without(process, part);
      else if (!process.port->schedule(part.steps, kMarks, &part))
        mistake_ = "a schedule was not taken";
      if (process.begun == 1) exchange_messages(process);
    }
  }
  static void continue_without(Process& process, Part& part) {
    part.status = Status::kOk;
    ++process.ended;
  }
  /// Beside its operations, a client sends to its right, and receives from its left.
  void exchange_messages(Process& process) {
    OperationId operation;
    Envelope envelope;
    Status status;
    const std::uint32_t left = (process.id + size() - 1) % size(), right = (process.id + 1) % size();
    if (processes_[left]->is_alive &&
        process.port->post_receive(make_match_key(1, left, 1), kIgnoreNothing,
                                   {reinterpret_cast<std::byte*>(&process.received), 8, nullptr}, &process,
                                   operation, envelope) == Progressed::kPending)
      ++process.messages_due;
    if (process.port->send(PeerId{right}, SendMode::kStandard, make_match_key(1, process.id, 1),
                           {reinterpret_cast<std::byte*>(&process.sent), 8, nullptr}, 0, &process, operation,
                           status) == Progressed::kPending)
      ++process.messages_due;
  }
  void take_events(Process& process) {
    for (Event event; process.port->next_event(event);) {
      switch (event.kind) {
        case Event::Kind::kCardWanted:
          process.port->introduce(event.peer, cards_[index_of(event.peer)]);
          break;
        case Event::Kind::kScheduleDone: {
          Part& part = *static_cast<Part*>(event.cookie);
          if (part.status || part.process != process.id) mistake_ = "a schedule has ended twice";
          part.status = event.status;
          ++process.ended;
          break;
        }
        case Event::Kind::kPeerFailed:
          if (!config_.one_dies) mistake_ = "a peer has failed";
          if (index_of(event.peer) == (process.id + size() - 1) % size() && process.messages_due > 0)
            process.messages_due = 0;  // Its own receive from there is MPI's to judge.
          break;
        case Event::Kind::kSendDone:
        case Event::Kind::kReceiveDone:
          if (process.messages_due > 0) --process.messages_due;
          break;
        default: break;
      }
    }
  }
  void kill() {
    Process& process = *processes_[random_.below(size())];
    process.is_alive = false;
    if (process.provider != nullptr) network_.kill(PeerId{process.id});
    process.port.reset();
    process.outlet.reset();
    process.provider.reset();
    // The process manager tells those, too, that have no connection with it.
    for (auto& other : processes_)
      if (other->is_alive) other->port->fail_peer(PeerId{process.id});
  }

  // The oracle.

  std::string judge() {
    for (const auto& process : processes_) {
      if (!process->is_alive) continue;
      for (std::size_t index = 0; index < plans_.size(); ++index) {
        const Part& part = *process->parts[index];
        if (!part.status) return "an operation has not ended";
        if (*part.status != Status::kOk) {
          ++failed_;
          if (!config_.one_dies) return "an operation has failed";
          if (*part.status != Status::kPeerFailed) return "an operation has failed for another reason";
          continue;
        }
        ++succeeded_;
        if (part.result != right_result(index, process->id))
          return "the result of operation " + std::to_string(index) + " is wrong at process " +
                 std::to_string(process->id);
      }
    }
    return network_.violations().empty() ? "" : network_.violations().front();
  }
  std::vector<std::uint64_t> right_result(std::size_t index, std::uint32_t self) const {
    const Plan& plan = plans_[index];
    std::vector<std::uint64_t> result;
    const auto of = [&](std::uint32_t member) {
      for (std::size_t i = 0; i < plan.elements; ++i) result.push_back(element(index, member, i));
    };
    switch (plan.kind) {
      case Kind::kBarrier: break;
      case Kind::kBroadcast: of(plan.root); break;
      case Kind::kReduceAndBroadcast:
        of(0);
        for (std::uint32_t member = 1; member < size(); ++member)
          for (std::size_t i = 0; i < plan.elements; ++i)
            result[i] = combined(plan.operation, result[i], element(index, member, i));
        break;
      default:
        static_cast<void>(self);
        for (std::uint32_t member = 0; member < size(); ++member) of(member);
    }
    return result;
  }
  static std::uint64_t combined(AtomicOperation operation, std::uint64_t a, std::uint64_t b) noexcept {
    switch (operation) {
      case AtomicOperation::kSum: return a + b;
      case AtomicOperation::kMax: return std::max(a, b);
      case AtomicOperation::kProduct: return a * b;
      default: return a ^ b;
    }
  }

  const Config config_;
  SeededRandom random_;
  FakeNetwork network_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<std::string> cards_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Plan> plans_;
  std::uint64_t dies_at_ = UINT64_MAX;
  std::string mistake_;
  std::uint64_t failed_ = 0, succeeded_ = 0;
};

}  // namespace ch3_offload
