// The functions of a module that tell places in a tree.

#include <new>
#include <optional>
#include <vector>

#include "modules/module_state.h"
#include "modules/tree.h"

namespace ch3_offload {

using namespace lua;  // NOLINT: in place of the global names of <lua.hpp>.

namespace {

/// Root, degree and, if it is another one's place that is asked for, rank.
Tree tree_of(lua_State* state, TreeShape shape, std::uint32_t& rank) {
  const ModulePlace& place = ModuleState::of(state).place();
  const lua_Integer least = shape == TreeShape::kKary ? 1 : 2;
  const lua_Integer root = luaL_checkinteger(state, 1);
  const lua_Integer degree = luaL_optinteger(state, 2, 2);
  const lua_Integer asked = luaL_optinteger(state, 3, place.rank);
  if (root < 0 || root >= static_cast<lua_Integer>(place.size))
    luaL_argerror(state, 1, "no rank of the group");
  if (degree < least || degree > 1'000'000) luaL_argerror(state, 2, "no degree of such a tree");
  if (asked < 0 || asked >= static_cast<lua_Integer>(place.size))
    luaL_argerror(state, 3, "no rank of the group");
  rank = static_cast<std::uint32_t>(asked);
  return {shape, static_cast<std::uint32_t>(degree), static_cast<std::uint32_t>(root), place.size};
}

template <TreeShape shape>
int tree_parent(lua_State* state) {
  std::uint32_t rank = 0;
  const Tree tree = tree_of(state, shape, rank);
  const std::optional<std::uint32_t> parent = parent_in(tree, rank);
  if (parent)
    lua_pushinteger(state, *parent);
  else
    lua_pushnil(state);
  return 1;
}

/// The ranks of the children, as an array of Lua's.
template <TreeShape shape>
int tree_children(lua_State* state) {
  std::uint32_t rank = 0;
  const Tree tree = tree_of(state, shape, rank);
  std::vector<std::uint32_t>& children = ModuleState::of(state).children();
  bool has_memory = true;
  try {
    children = children_in(tree, rank);
  } catch (const std::bad_alloc&) {
    has_memory = false;
  }
  if (!has_memory) luaL_error(state, "there is no memory");
  ModuleState::of(state).charge(state, children.size() / 4 + 10);
  lua_createtable(state, static_cast<int>(children.size()), 0);
  for (std::size_t i = 0; i < children.size(); ++i) {
    lua_pushinteger(state, children[i]);
    lua_rawseti(state, -2, static_cast<lua_Integer>(i + 1));
  }
  return 1;
}

}  // namespace

void open_module_tree(lua_State* state) {
  static const luaL_Reg kTree[] = {{"parent", tree_parent<TreeShape::kKary>},
                                   {"children", tree_children<TreeShape::kKary>},
                                   {"knomial_parent", tree_parent<TreeShape::kKnomial>},
                                   {"knomial_children", tree_children<TreeShape::kKnomial>},
                                   {nullptr, nullptr}};
  lua_createtable(state, 0, 4);
  luaL_setfuncs(state, kTree, 0);
  lua_setglobal(state, "tree");
}

}  // namespace ch3_offload
