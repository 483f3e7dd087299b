// What a module's Lua state and the functions that it calls share. Included by src/modules/*.cc only.
//
// The functions run below lua_pcall(): luaL_error() leaves them by longjmp, so no object with a destructor may
// live when it is called, and no exception may leave them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "modules/lua_library.h"
#include "modules/module.h"
#include "rdma/monotonic_clock.h"

namespace ch3_offload {

/// A message as the module's text has it. It is the state's: Lua's userdata, which a collector may free without
/// its finalizer when memory is used up, has no more than a pointer to it.
struct LuaMessage {
  std::shared_ptr<ModuleMessage> message;  ///< Null: it is gone.
  bool is_kept = false;                    ///< It outlives its activation.
  std::list<LuaMessage>::iterator place;
};

class ModuleState {
 public:
  ModuleState(std::string name, const ModulePlace& place, const ModuleBudgets& budgets)
      : name_(std::move(name)),
        place_(place),
        budgets_(budgets),
        account_(std::make_shared<std::size_t>(0)) {}
  ~ModuleState();
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  static ModuleState& of(lua_State* state) noexcept {
    // The space that Lua keeps before each state for its host (manual, section 4.6).
    return **reinterpret_cast<ModuleState**>(lua_getextraspace(state));
  }

  /// Makes the Lua state, compiles the text and runs it. Returns what is wrong, or "".
  std::string start(std::string_view source);
  /// Calls on_message(), or on_timer() if there is no message. Returns what is wrong, or "".
  std::string run(std::shared_ptr<ModuleMessage> message, ModuleOutput& output);
  std::uint64_t due_ns() const noexcept { return due_ns_; }
  ModuleUse use() const noexcept { return {activations_, instructions_all_, sends_all_, memory_used_}; }

  // For the functions that the module calls.

  const ModulePlace& place() const noexcept { return place_; }
  const std::string& name() const noexcept { return name_; }
  const ModuleBudgets& budgets() const noexcept { return budgets_; }
  const BlockAccount& account() const noexcept { return account_; }
  std::uint64_t now_ns() const noexcept {
    return place_.clock_ns != nullptr ? *place_.clock_ns : monotonic_ns();
  }
  /// When the module was loaded.
  std::uint64_t began_ns() const noexcept { return began_ns_; }
  /// When on_timer() is to be called. UINT64_MAX: never.
  void set_due(std::uint64_t due_ns) noexcept { due_ns_ = due_ns; }
  /// Null: no activation runs, but the module's own text.
  ModuleOutput* output() noexcept { return output_; }
  /// So much work inside C counts as instructions. May leave by luaL_error().
  void charge(lua_State* state, std::uint64_t instructions);
  /// Pushes a new userdata; null: no memory.
  LuaMessage* push_message(lua_State* state);
  void forget(LuaMessage& message) noexcept { messages_.erase(message.place); }
  /// Room for a result, which no error of Lua's can leak.
  std::vector<std::uint32_t>& children() noexcept { return children_; }

 private:
  static void* allocate(void* self, void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept;
  void look_at_time(lua_State* state);
  static void hook(lua_State* state, lua_Debug*);
  std::string call(int arguments);
  void make_globals();
  void end_activation() noexcept;

  const std::string name_;
  const ModulePlace place_;
  const ModuleBudgets budgets_;
  const BlockAccount account_;
  lua_State* lua_ = nullptr;
  std::size_t memory_used_ = 0;
  std::uint64_t began_ns_ = 0;
  std::uint64_t due_ns_ = UINT64_MAX;
  std::uint64_t instructions_ = 0;  ///< In this activation.
  std::uint64_t deadline_ns_ = 0;   ///< By the clock. Then the time of the thread is looked at.
  std::uint64_t began_thread_ns_ = 0;
  ModuleOutput* output_ = nullptr;
  std::list<LuaMessage> messages_;
  std::vector<std::uint32_t> children_;
  std::uint64_t activations_ = 0, instructions_all_ = 0, sends_all_ = 0;
};

/// Registers the types of messages and views, and the functions new and log.
void open_module_values(lua_State* state);
/// Registers the functions of trees.
void open_module_tree(lua_State* state);
/// Registers the functions timer and clock.
void open_module_clock(lua_State* state);

}  // namespace ch3_offload
