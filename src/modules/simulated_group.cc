#include "modules/simulated_group.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace ch3_offload {

SimulatedGroup::SimulatedGroup(std::uint32_t size, std::uint64_t seed, const ModuleBudgets& budgets)
    : size_(size),
      budgets_(budgets),
      account_(std::make_shared<std::size_t>(0)),
      random_(seed),
      ways_(size) {}

std::string SimulatedGroup::load(std::string_view name, std::string_view source) {
  modules_.clear();
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    std::string error;
    modules_.push_back(Module::load(name, source, {rank, size_, &now_ns_}, budgets_, error));
    if (modules_.back() == nullptr) return error;
  }
  return "";
}

void SimulatedGroup::give(std::uint32_t to, std::uint32_t root, std::uint32_t tag, std::string_view payload) {
  std::shared_ptr<ModuleMessage> message = ModuleMessage::make(payload.size(), account_);
  if (message == nullptr) throw std::bad_alloc();
  if (!payload.empty()) std::memcpy(message->payload().data(), payload.data(), payload.size());
  ModuleHeader& header = message->header();
  header.root = root;
  header.tag = tag;
  header.source = to;
  post(to, to, std::move(message));
}

void SimulatedGroup::post(std::uint32_t from, std::uint32_t to, std::shared_ptr<ModuleMessage> message) {
  std::vector<Way>& ways = ways_[from];
  auto way = std::ranges::find(ways, to, &Way::to);
  if (way == ways.end()) way = ways.insert(ways.end(), Way{to, {}});
  if (way->messages.empty()) busy_.emplace_back(from, static_cast<std::size_t>(way - ways.begin()));
  way->messages.push_back(std::move(message));
}

std::string SimulatedGroup::run(std::size_t most, std::uint64_t until_ms) {
  for (std::uint32_t rank = 0; !busy_.empty() || next_timer(until_ms, rank);) {
    if (arrived_ + fired_ >= most)
      return "after " + std::to_string(most) +
             " messages and timers there are still some on their way, or due";
    std::string problem = busy_.empty() ? activate(rank, nullptr) : arrive();
    if (!problem.empty()) return problem;
  }
  return "";
}

/// The message that is chosen arrives.
std::string SimulatedGroup::arrive() {
  const std::size_t chosen = random_() % busy_.size();
  const auto [from, index] = busy_[chosen];
  Way& way = ways_[from][index];
  const std::uint32_t rank = way.to;
  std::shared_ptr<ModuleMessage> sent = std::move(way.messages.front());
  way.messages.pop_front();
  if (way.messages.empty()) {
    busy_[chosen] = busy_.back();
    busy_.pop_back();
  }
  ++arrived_;
  // A block of its own: another process has another memory.
  std::shared_ptr<ModuleMessage> message = ModuleMessage::make(sent->payload().size(), account_);
  if (message == nullptr) throw std::bad_alloc();
  std::ranges::copy(sent->whole(), message->whole().begin());
  message->header().source = from;
  return activate(rank, std::move(message));
}

/// Nothing is on its way: the clock goes to the next timer. Returns false if none is due in time.
bool SimulatedGroup::next_timer(std::uint64_t until_ms, std::uint32_t& rank) {
  const auto next = std::ranges::min_element(
      modules_, {}, [](const std::unique_ptr<Module>& module) { return module->due_ns(); });
  if (next == modules_.end() || (*next)->due_ns() > until_ms * 1'000'000) return false;
  now_ns_ = std::max(now_ns_, (*next)->due_ns());
  rank = static_cast<std::uint32_t>(next - modules_.begin());
  return true;
}

/// With a message, or, without, by its timer.
std::string SimulatedGroup::activate(std::uint32_t rank, std::shared_ptr<ModuleMessage> message) {
  Module& module = *modules_[rank];
  const std::uint64_t before = module.use().instructions;
  ModuleOutput output;
  std::string error;
  if (message == nullptr) ++fired_;
  const bool is_good =
      message == nullptr ? module.fire(output, error) : module.activate(std::move(message), output, error);
  most_instructions_ = std::max(most_instructions_, module.use().instructions - before);
  for (const std::string& line : output.lines) lines_.push_back("rank " + std::to_string(rank) + ": " + line);
  if (!is_good) return "rank " + std::to_string(rank) + ": " + error;
  for (ModuleOutput::Sent& one : output.sends) post(rank, one.rank, std::move(one.message));
  for (const std::shared_ptr<ModuleMessage>& one : output.deliveries)
    deliveries_.push_back({rank, one->header().root, one->header().tag, std::string(one->text())});
  return "";
}

}  // namespace ch3_offload
