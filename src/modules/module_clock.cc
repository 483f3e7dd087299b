// The functions of a module that have to do with time.

#include "modules/module_state.h"

namespace ch3_offload {

using namespace lua;  // NOLINT: in place of the global names of <lua.hpp>.

namespace {

constexpr std::uint64_t kMillisecondNs = 1'000'000;
constexpr lua_Integer kMostTimerMs = 86'400'000;

/// timer(milliseconds): on_timer() is called once, when so much time has passed. A later call replaces an
/// earlier one. Without an argument it is not called.
int set_timer(lua_State* state) {
  ModuleState& module = ModuleState::of(state);
  if (lua_gettop(state) == 0 || lua_type(state, 1) == LUA_TNIL) {
    module.set_due(UINT64_MAX);
    return 0;
  }
  const lua_Integer after_ms = luaL_checkinteger(state, 1);
  if (after_ms < 1 || after_ms > kMostTimerMs)
    luaL_argerror(state, 1, "a timer takes 1 to 86400000 milliseconds");
  module.set_due(module.now_ns() + static_cast<std::uint64_t>(after_ms) * kMillisecondNs);
  return 0;
}

/// clock(): milliseconds since the module was loaded, with a fraction.
int read_clock(lua_State* state) {
  const ModuleState& module = ModuleState::of(state);
  lua_pushnumber(state, static_cast<double>(module.now_ns() - module.began_ns()) / kMillisecondNs);
  return 1;
}

}  // namespace

void open_module_clock(lua_State* state) {
  lua_pushcclosure(state, set_timer, 0);
  lua_setglobal(state, "timer");
  lua_pushcclosure(state, read_clock, 0);
  lua_setglobal(state, "clock");
}

}  // namespace ch3_offload
