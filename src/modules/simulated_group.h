// A module in all processes of a simulated group: what ch3-offload-module runs a module on before it is
// loaded anywhere, and its tests.
//
// Messages of one process to another stay in order. Which of those that are on their way arrives next is
// chosen by a seed: so a module that leans on an order between senders is found out. Its clock stands while
// messages are on their way, and then goes to the next timer.
//
// Threads: one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "modules/module.h"

namespace ch3_offload {

class SimulatedGroup {
 public:
  struct Delivery {
    std::uint32_t rank = 0;  ///< To whose host.
    std::uint32_t root = 0, tag = 0;
    std::string payload;
  };

  /// Throws std::bad_alloc.
  SimulatedGroup(std::uint32_t size, std::uint64_t seed, const ModuleBudgets& budgets = {});

  /// Loads it in every process. Returns what is wrong, or "".
  std::string load(std::string_view name, std::string_view source);

  /// Gives a message to the module in the process of rank `to`, as if its host had.
  void give(std::uint32_t to, std::uint32_t root, std::uint32_t tag, std::string_view payload);

  /// Runs until nothing is on its way and no timer is due in the first `until_ms` milliseconds, or `most`
  /// activations. Returns what is wrong, or "".
  std::string run(std::size_t most, std::uint64_t until_ms = 0);

  const std::vector<Delivery>& deliveries() const noexcept { return deliveries_; }
  /// Lines of log(), as "rank R: ...".
  const std::vector<std::string>& lines() const noexcept { return lines_; }
  std::size_t arrived() const noexcept { return arrived_; }
  /// How often on_timer() was called.
  std::size_t fired() const noexcept { return fired_; }
  /// The most instructions that one activation has taken.
  std::uint64_t most_instructions() const noexcept { return most_instructions_; }

 private:
  struct Way {  ///< From one process to another.
    std::uint32_t to = 0;
    std::deque<std::shared_ptr<ModuleMessage>> messages;
  };
  void post(std::uint32_t from, std::uint32_t to, std::shared_ptr<ModuleMessage> message);
  std::string arrive();
  bool next_timer(std::uint64_t until_ms, std::uint32_t& rank);
  std::string activate(std::uint32_t rank, std::shared_ptr<ModuleMessage> message);

  const std::uint32_t size_;
  const ModuleBudgets budgets_;
  const BlockAccount account_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Module>> modules_;             ///< By rank.
  std::vector<std::vector<Way>> ways_;                       ///< By sender.
  std::vector<std::pair<std::uint32_t, std::size_t>> busy_;  ///< Sender and index of ways with messages.
  std::vector<Delivery> deliveries_;
  std::vector<std::string> lines_;
  std::size_t arrived_ = 0;
  std::size_t fired_ = 0;
  std::uint64_t now_ns_ = 0;
  std::uint64_t most_instructions_ = 0;
};

}  // namespace ch3_offload
