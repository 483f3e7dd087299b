// The functions of Lua 5.4's library, which is loaded when the first module is.
//
// So a process without modules does not pay for it, and a program that has another Lua in it does not meet
// ours: the names here hide those of <lua.hpp> for code in this namespace, macros included, and the library's
// own calls stay within it.
//
// Threads: load_library() any; the functions are constant afterwards.

#pragma once

#include <lua.hpp>
#include <string>

namespace ch3_offload::lua {

// NOLINTNEXTLINE: a list of names.
#define CH3_OFFLOAD_LUA_FUNCTIONS(F)                                                                         \
  F(lua_newstate) F(lua_close) F(lua_sethook) F(lua_pcallk) F(lua_gc) F(lua_type) F(lua_typename)            \
  F(lua_gettop) F(lua_settop) F(lua_pushvalue) F(lua_pushnil) F(lua_pushinteger) F(lua_pushnumber)           \
  F(lua_pushboolean) F(lua_pushlstring) F(lua_pushstring) F(lua_pushcclosure) F(lua_createtable)             \
  F(lua_getfield) F(lua_setfield) F(lua_getglobal) F(lua_setglobal) F(lua_rawgeti) F(lua_rawseti)            \
  F(lua_rawget) F(lua_rawlen) F(lua_rotate) F(lua_callk) F(lua_pushlightuserdata) F(lua_newuserdatauv)       \
  F(lua_setiuservalue) F(lua_setmetatable) F(lua_touserdata)                                                 \
  F(lua_tolstring) F(lua_tointegerx) F(lua_tonumberx) F(lua_isinteger) F(luaL_loadbufferx) F(luaL_requiref)  \
  F(luaL_error) F(luaL_argerror) F(luaL_newmetatable) F(luaL_setmetatable) F(luaL_checkudata)                \
  F(luaL_checkinteger) F(luaL_optinteger) F(luaL_checknumber) F(luaL_checklstring) F(luaL_checkoption)       \
  F(luaL_tolstring) F(luaL_setfuncs) F(luaopen_base) F(luaopen_string) F(luaopen_math) F(luaopen_table)

#define CH3_OFFLOAD_LUA_DECLARE(name) inline decltype(&::name) name = nullptr;  // NOLINT
CH3_OFFLOAD_LUA_FUNCTIONS(CH3_OFFLOAD_LUA_DECLARE)
#undef CH3_OFFLOAD_LUA_DECLARE

/// Loads it, once. Returns what is wrong, or "". Throws std::bad_alloc.
std::string load_library();

}  // namespace ch3_offload::lua
