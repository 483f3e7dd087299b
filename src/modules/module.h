// A module: a program of the user in the processor, as source text in Lua 5.4, which acts on messages.
//
// It has a Lua state of its own, without files, processes, loading of code, protected calls, metatables of
// its own and functions that work for ever inside C (docs/modules.md lists what there is). What it may use is
// bounded (ModuleBudgets): a module that goes beyond is stopped, and nothing that this activation wanted to
// send is sent.
//
// It knows no network: an activation says what is to be sent and delivered (ModuleOutput), and the caller
// does it. So the same module runs in a processor (module_runner.h) and in a simulated group
// (simulated_group.h).
//
// Threads: one at a time. Allocation: Lua's, up to the budget, and blocks.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "modules/module_message.h"

namespace ch3_offload {

/// The process that a module is loaded in, in its group.
struct ModulePlace {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  /// Where the time is, of a simulated group. Nanoseconds. Null: it is the node's.
  const std::uint64_t* clock_ns = nullptr;
};

/// What an instruction may take, on the average of an activation: many work inside C. Nanoseconds.
inline constexpr std::uint64_t kModuleInstructionNs = 250;

/// What an activation of few instructions may take, too: page faults and interrupts are in its time.
/// Nanoseconds.
inline constexpr std::uint64_t kLeastActivationNs = 10'000'000;

struct ModuleBudgets {
  std::size_t memory_bytes = std::size_t{1} << 20;  ///< Of its Lua state.
  std::size_t block_bytes =
      2 * kMostModulePayload;            ///< Of messages that it makes, keeps or has on their way.
  std::uint64_t instructions = 200'000;  ///< Of Lua's, in one activation.
  /// Of the processor, in one activation.
  std::uint64_t activation_ns = 200'000 * kModuleInstructionNs;
  std::size_t sends = 4096;    ///< In one activation, deliveries included.
  std::size_t lines = 16;      ///< Of log(), in one activation.
  unsigned time_percent = 50;  ///< Of the processor's time, for all modules of a client. 0: there are none.
};

/// A longer source text is refused. Bytes.
inline constexpr std::size_t kMostModuleSource = std::size_t{64} << 10;
/// A longer line of log() is cut. Bytes.
inline constexpr std::size_t kMostModuleLine = 200;

/// What an activation wants done, in this order: sends, deliveries, lines.
struct ModuleOutput {
  struct Sent {
    std::uint32_t rank = 0;
    std::shared_ptr<ModuleMessage> message;
  };
  std::vector<Sent> sends;
  std::vector<std::shared_ptr<ModuleMessage>> deliveries;  ///< To the host of this process.
  std::vector<std::string> lines;                          ///< For the user.
};

/// What a module has used so far.
struct ModuleUse {
  std::uint64_t activations = 0;
  std::uint64_t instructions = 0;
  std::uint64_t sends = 0;
  std::size_t memory_bytes = 0;  ///< Now.
};

class ModuleState;

class Module {
 public:
  /// Compiles the text and runs it once, so that its globals are there. Null: `error` says why, with the
  /// line. The name is of 1 to kMostModuleName letters, digits, '_', '-' and '.'. Throws std::bad_alloc.
  static std::unique_ptr<Module> load(std::string_view name, std::string_view source,
                                      const ModulePlace& place, const ModuleBudgets& budgets,
                                      std::string& error);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Runs on_message(message). False: it has failed, `error` says why, `output` has lines only, and the
  /// module must not be used any more. Throws std::bad_alloc.
  bool activate(std::shared_ptr<ModuleMessage> message, ModuleOutput& output, std::string& error);
  /// When on_timer() is to be called, by the clock of its place. UINT64_MAX: it is not.
  std::uint64_t due_ns() const noexcept;
  /// Runs on_timer(), as activate(). It is not due any more, unless it asks again.
  bool fire(ModuleOutput& output, std::string& error);

  ModuleUse use() const noexcept;

 private:
  explicit Module(std::unique_ptr<ModuleState> state) noexcept;
  std::unique_ptr<ModuleState> state_;
};

/// Whether it can be the name of a module.
inline bool is_module_name(std::string_view name) noexcept {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMostModuleName && std::ranges::all_of(name, is_good);
}

}  // namespace ch3_offload
