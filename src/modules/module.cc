// The Lua state of a module: what there is in it, and what it may use.

#include "modules/module.h"

#include <time.h>

#include <array>
#include <cstdlib>
#include <iterator>
#include <new>
#include <utility>

#include "modules/module_state.h"

namespace ch3_offload {

using namespace lua;  // NOLINT: in place of the global names of <lua.hpp>.

namespace {

/// Instructions between two looks at the budgets.
constexpr int kHookInterval = 25;
/// Of a string. With what Lua adds.
constexpr std::size_t kMostStringBytes = (std::size_t{32} << 10) + 64;
/// Messages that a module may have at a time.
constexpr std::size_t kMostMessages = 16 * 1024;

// What a module finds of Lua's own libraries. What is missing can work for ever inside C, where no instruction
// is counted (patterns, string.rep, table.move and sort on tables that claim to be long), catches the error by
// which a module is stopped (pcall), loads code, or reaches outside.
constexpr std::array kBase = {"assert", "error",  "ipairs", "next",     "pairs",    "rawequal", "rawget",
                              "rawlen", "rawset", "select", "tonumber", "tostring", "type"};
constexpr std::array kString = {"byte", "char", "format", "len", "lower", "reverse", "sub", "upper"};
constexpr std::array kMath = {"abs",        "ceil",       "exp", "floor",     "fmod", "huge", "log",
                              "max",        "maxinteger", "min", "modf",      "pi",   "sqrt", "sin",
                              "mininteger", "cos",        "tan", "tointeger", "type", "ult",  "random"};

std::uint64_t thread_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// Replaces the table on top by one that has only those of its members.
template <std::size_t count>
void keep_only(lua_State* state, const std::array<const char*, count>& names) {
  lua_createtable(state, 0, static_cast<int>(count));
  for (const char* const name : names) {
    lua_getfield(state, -2, name);
    lua_setfield(state, -2, name);
  }
}

/// Calls the function that is its upvalue, if the first argument is a table.
int of_table(lua_State* state) {
  if (lua_type(state, 1) != LUA_TTABLE) return luaL_argerror(state, 1, "a table was expected");
  ModuleState::of(state).charge(state, lua_rawlen(state, 1) / 2 + 10);
  lua_pushvalue(state, lua_upvalueindex(1));
  lua_rotate(state, 1, 1);
  lua_callk(state, lua_gettop(state) - 1, LUA_MULTRET, 0, nullptr);
  return lua_gettop(state);
}

}  // namespace

ModuleState::~ModuleState() {
  output_ = nullptr;
  if (lua_ != nullptr) lua_close(lua_);
}

void* ModuleState::allocate(void* self, void* block, std::size_t old_bytes, std::size_t new_bytes) noexcept {
  auto& state = *static_cast<ModuleState*>(self);
  // Of a new object it is the kind. What compares long strings does so for long, and is one instruction.
  if (block == nullptr && old_bytes == LUA_TSTRING && new_bytes > kMostStringBytes) return nullptr;
  if (block == nullptr) old_bytes = 0;
  if (new_bytes == 0) {
    std::free(block);  // NOLINT: Lua's allocator is realloc() with limits.
    state.memory_used_ -= old_bytes;
    return nullptr;
  }
  if (new_bytes > old_bytes && new_bytes - old_bytes > state.budgets_.memory_bytes - state.memory_used_)
    return nullptr;
  void* const moved = std::realloc(block, new_bytes);  // NOLINT
  if (moved != nullptr) state.memory_used_ += new_bytes - old_bytes;
  return moved;
}

void ModuleState::charge(lua_State* state, std::uint64_t instructions) {
  instructions_ += instructions;
  if (instructions_ > budgets_.instructions)
    luaL_error(state, "it has used up its %I instructions", static_cast<LUAI_UACINT>(budgets_.instructions));
  if (monotonic_ns() > deadline_ns_) [[unlikely]]
    look_at_time(state);
}

/// Time that others had the core is not the module's. The time of a thread takes a system call.
void ModuleState::look_at_time(lua_State* state) {
  const std::uint64_t used = thread_ns() - began_thread_ns_;
  if (used >= budgets_.activation_ns)
    luaL_error(state, "it has used up its %I microseconds",
               static_cast<LUAI_UACINT>(budgets_.activation_ns / 1000));
  deadline_ns_ = monotonic_ns() + (budgets_.activation_ns - used);
}

void ModuleState::hook(lua_State* state, lua_Debug*) { of(state).charge(state, kHookInterval); }

/// Calls the function below `arguments` values on top of the stack, within the budgets.
std::string ModuleState::call(int arguments) {
  instructions_ = 0;
  deadline_ns_ = monotonic_ns() + budgets_.activation_ns;
  began_thread_ns_ = thread_ns();
  const int status = lua_pcallk(lua_, arguments, 0, 0, 0, nullptr);
  instructions_all_ += instructions_;
  std::string problem;
  if (status != LUA_OK) {
    const char* const said = lua_type(lua_, -1) == LUA_TSTRING ? lua_tolstring(lua_, -1, nullptr) : nullptr;
    problem = status == LUA_ERRMEM ? "it has used up its memory" : said == nullptr ? "" : said;
    if (problem.empty()) problem = "an error";
  }
  lua_settop(lua_, 0);
  return problem;
}

void ModuleState::make_globals() {
  luaL_requiref(lua_, "_G", luaopen_base, 0);
  keep_only(lua_, kBase);
  luaL_requiref(lua_, "string", luaopen_string, 0);
  keep_only(lua_, kString);
  // Strings find their methods in the library's own table.
  lua_pushstring(lua_, "");
  lua_createtable(lua_, 0, 1);
  lua_pushvalue(lua_, -3);
  lua_setfield(lua_, -2, "__index");
  lua_setmetatable(lua_, -2);
  lua_settop(lua_, -2);
  lua_setfield(lua_, 2, "string");
  lua_settop(lua_, 2);
  luaL_requiref(lua_, "table", luaopen_table, 0);
  lua_createtable(lua_, 0, 2);
  // These take whatever can be indexed, and would walk a view inside C.
  for (const char* const name : {"concat", "unpack"}) {
    lua_getfield(lua_, 3, name);
    lua_pushcclosure(lua_, of_table, 1);
    lua_setfield(lua_, 4, name);
  }
  lua_setfield(lua_, 2, "table");
  lua_settop(lua_, 2);
  luaL_requiref(lua_, "math", luaopen_math, 0);
  lua_getfield(lua_, -1, "randomseed");
  lua_pushinteger(lua_, place_.rank);
  lua_pcallk(lua_, 1, 0, 0, 0, nullptr);
  keep_only(lua_, kMath);
  lua_setfield(lua_, 2, "math");
  lua_settop(lua_, 2);
  // From now on these are the globals.
  lua_rawseti(lua_, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_settop(lua_, 0);
  lua_pushinteger(lua_, place_.rank);
  lua_setglobal(lua_, "rank");
  lua_pushinteger(lua_, place_.size);
  lua_setglobal(lua_, "size");
  lua_pushlstring(lua_, name_.data(), name_.size());
  lua_setglobal(lua_, "name");
  open_module_values(lua_);
  open_module_tree(lua_);
  open_module_clock(lua_);
  lua_settop(lua_, 0);
}

std::string ModuleState::start(std::string_view source) {
  began_ns_ = now_ns();
  lua_ = lua_newstate(allocate, this);
  if (lua_ == nullptr) return "it has no memory for its Lua state";
  *reinterpret_cast<ModuleState**>(lua_getextraspace(lua_)) = this;
  // All that may raise an error is under a protected call: memory may be used up at any moment.
  lua_pushcclosure(
      lua_,
      [](lua_State* state) {
        of(state).make_globals();
        return 0;
      },
      0);
  if (std::string failed = call(0); !failed.empty()) return failed;
  const std::string chunk = "=" + name_;
  if (luaL_loadbufferx(lua_, source.data(), source.size(), chunk.c_str(), "t") != LUA_OK) {
    const char* const said = lua_type(lua_, -1) == LUA_TSTRING ? lua_tolstring(lua_, -1, nullptr) : nullptr;
    return said == nullptr ? "its text cannot be compiled" : said;
  }
  lua_sethook(lua_, hook, LUA_MASKCOUNT, kHookInterval);
  const std::string failed = call(0);
  end_activation();
  if (!failed.empty()) return failed;
  lua_pushcclosure(
      lua_,
      [](lua_State* state) {
        if (lua_getglobal(state, "on_message") == LUA_TFUNCTION) return 0;
        return luaL_error(state, "it has no function on_message(message)");
      },
      0);
  return call(0);
}

std::string ModuleState::run(std::shared_ptr<ModuleMessage> message, ModuleOutput& output) {
  ++activations_;
  output_ = &output;
  // The userdata is made under the protected call, too.
  struct Start {
    std::shared_ptr<ModuleMessage>* message;
  } start{&message};
  lua_pushcclosure(
      lua_,
      [](lua_State* state) {
        auto& begun = *static_cast<Start*>(lua_touserdata(state, 1));
        if (*begun.message == nullptr) {
          if (lua_getglobal(state, "on_timer") != LUA_TFUNCTION)
            return luaL_error(state, "it has no function on_timer()");
          lua_callk(state, 0, 0, 0, nullptr);
          return 0;
        }
        lua_getglobal(state, "on_message");
        LuaMessage* const passed = of(state).push_message(state);
        if (passed == nullptr) return luaL_error(state, "it has used up its memory");
        passed->message = std::move(*begun.message);
        lua_callk(state, 1, 0, 0, nullptr);
        return 0;
      },
      0);
  lua_pushlightuserdata(lua_, &start);
  std::string problem = call(1);
  end_activation();
  if (problem.empty() && *account_ > budgets_.block_bytes)
    problem = "it has more than " + std::to_string(budgets_.block_bytes) +
              " bytes of messages on their way or kept";
  if (!problem.empty()) {
    output.sends.clear();
    output.deliveries.clear();
  }
  sends_all_ += output.sends.size() + output.deliveries.size();
  return problem;
}

/// What was not kept is gone, whatever Lua's collector thinks of it: blocks are large, and userdata small.
void ModuleState::end_activation() noexcept {
  output_ = nullptr;
  for (LuaMessage& one : messages_)
    if (!one.is_kept) one.message.reset();
}

LuaMessage* ModuleState::push_message(lua_State* state) {
  auto* const named = static_cast<LuaMessage**>(lua_newuserdatauv(state, sizeof(LuaMessage*), 0));
  *named = nullptr;
  luaL_setmetatable(state, "message");
  if (messages_.size() >= kMostMessages) return nullptr;
  try {
    LuaMessage& made = messages_.emplace_back();
    made.place = std::prev(messages_.end());
    *named = &made;
    return &made;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Module.

Module::Module(std::unique_ptr<ModuleState> state) noexcept : state_(std::move(state)) {}
Module::~Module() = default;

std::unique_ptr<Module> Module::load(std::string_view name, std::string_view source, const ModulePlace& place,
                                     const ModuleBudgets& budgets, std::string& error) {
  error.clear();
  if (!is_module_name(name)) {
    error =
        "a module's name has 1 to " + std::to_string(kMostModuleName) + " letters, digits, '_', '-' and '.'";
    return nullptr;
  }
  if (source.size() > kMostModuleSource) {
    error = "its text has " + std::to_string(source.size()) + " bytes; it may have " +
            std::to_string(kMostModuleSource);
    return nullptr;
  }
  error = load_library();
  if (!error.empty()) return nullptr;
  auto state = std::make_unique<ModuleState>(std::string(name), place, budgets);
  error = state->start(source);
  if (!error.empty()) return nullptr;
  return std::unique_ptr<Module>(new Module(std::move(state)));
}

bool Module::activate(std::shared_ptr<ModuleMessage> message, ModuleOutput& output, std::string& error) {
  error = state_->run(std::move(message), output);
  return error.empty();
}

std::uint64_t Module::due_ns() const noexcept { return state_->due_ns(); }

bool Module::fire(ModuleOutput& output, std::string& error) {
  state_->set_due(UINT64_MAX);
  error = state_->run(nullptr, output);
  return error.empty();
}

ModuleUse Module::use() const noexcept { return state_->use(); }

}  // namespace ch3_offload
