// What a module's text works with: messages, views of them, log().
//
// See module_state.h for what these functions must not do.

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "engine/targets/target_atomics.h"
#include "modules/module_state.h"

namespace ch3_offload {

using namespace lua;  // NOLINT: in place of the global names of <lua.hpp>.

namespace {

LuaMessage& message_at(lua_State* state, int index) {
  LuaMessage* const one = *static_cast<LuaMessage**>(luaL_checkudata(state, index, "message"));
  if (one == nullptr || one->message == nullptr)
    luaL_error(state, "this message is gone: keep() it to use it later");
  return *one;
}
ModuleMessage& at(lua_State* state, int index) { return *message_at(state, index).message; }
ModuleMessage& writable(lua_State* state, LuaMessage& one) {
  if (one.message == nullptr) luaL_error(state, "this message is gone: keep() it to use it later");
  if (one.message->is_fixed()) luaL_error(state, "this message was sent or delivered: nobody may change it");
  return *one.message;
}

// In Lua's registry: what the text can call of messages and of views.
constexpr const char* kMessageMethods = "message methods";
constexpr const char* kViewMethods = "view methods";

/// The one that the value at index 2 names, or nil.
int push_method(lua_State* state, const char* table) {
  lua_getfield(state, LUA_REGISTRYINDEX, table);
  lua_pushvalue(state, 2);
  lua_rawget(state, -2);
  return 1;
}

// Views.

enum class Element : std::uint8_t {
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kFloat32,
  kInt64,
  kUint64,
  kFloat64
};
constexpr std::array<const char*, 11> kElementNames = {
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "int64", "uint64", "float64", nullptr};
constexpr std::array kElementTypes = {
    AtomicType::kInt8,   AtomicType::kUint8, AtomicType::kInt16, AtomicType::kUint16, AtomicType::kInt32,
    AtomicType::kUint32, AtomicType::kFloat, AtomicType::kInt64, AtomicType::kUint64, AtomicType::kDouble};

struct View {
  LuaMessage* message;  ///< Lives as long as the view: it is its user value.
  Element element;
  std::size_t offset_bytes;
  std::size_t count;

  AtomicType type() const noexcept { return kElementTypes[static_cast<std::size_t>(element)]; }
  std::size_t bytes_each() const noexcept { return element_bytes(type()); }
};

View& view_at(lua_State* state, int index) {
  return *static_cast<View*>(luaL_checkudata(state, index, "view"));
}
std::span<std::byte> bytes_of(lua_State* state, const View& view) {
  if (view.message->message == nullptr) luaL_error(state, "the message of this view is gone: keep() it");
  return view.message->message->payload().subspan(view.offset_bytes, view.count * view.bytes_each());
}

/// Calls `use` with an object of the element's type in C.
template <class Use>
void with_type(Element element, Use use) {
  switch (element) {
    case Element::kInt8: return use(std::int8_t{});
    case Element::kUint8: return use(std::uint8_t{});
    case Element::kInt16: return use(std::int16_t{});
    case Element::kUint16: return use(std::uint16_t{});
    case Element::kInt32: return use(std::int32_t{});
    case Element::kUint32: return use(std::uint32_t{});
    case Element::kFloat32: return use(float{});
    case Element::kInt64: return use(std::int64_t{});
    case Element::kUint64: return use(std::uint64_t{});
    case Element::kFloat64: return use(double{});
  }
}
template <class T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void push_value(lua_State* state, T value) {
  if constexpr (std::is_floating_point_v<T>)
    lua_pushnumber(state, static_cast<lua_Number>(value));
  else
    lua_pushinteger(state, static_cast<lua_Integer>(value));
}

void store(lua_State* state, Element element, std::byte* to, int value_index) {
  const bool is_floating = element == Element::kFloat32 || element == Element::kFloat64;
  const lua_Number number = is_floating ? luaL_checknumber(state, value_index) : 0;
  const lua_Integer integer = is_floating ? 0 : luaL_checkinteger(state, value_index);
  with_type(element, [&](auto typed) {
    using T = decltype(typed);
    const T value = std::is_floating_point_v<T> ? static_cast<T>(number) : static_cast<T>(integer);
    std::memcpy(to, &value, sizeof value);
  });
}

std::size_t element_index(lua_State* state, const View& view) {
  const lua_Integer index = luaL_checkinteger(state, 2);
  if (index < 1 || static_cast<std::uint64_t>(index) > view.count)
    luaL_error(state, "there is no element %I: the view has %I", static_cast<LUAI_UACINT>(index),
               static_cast<LUAI_UACINT>(view.count));
  return static_cast<std::size_t>(index - 1);
}

int view_index(lua_State* state) {
  const View& view = view_at(state, 1);
  if (lua_type(state, 2) == LUA_TSTRING) {  // A method.
    return push_method(state, kViewMethods);
  }
  const std::byte* const from = bytes_of(state, view).data() + element_index(state, view) * view.bytes_each();
  with_type(view.element, [&](auto typed) { push_value(state, load<decltype(typed)>(from)); });
  return 1;
}

int view_set(lua_State* state) {
  const View& view = view_at(state, 1);
  writable(state, *view.message);
  store(state, view.element, bytes_of(state, view).data() + element_index(state, view) * view.bytes_each(),
        3);
  return 0;
}

int view_length(lua_State* state) {
  lua_pushinteger(state, static_cast<lua_Integer>(view_at(state, 1).count));
  return 1;
}

/// Work on elements inside C counts, too: about as much as it takes of the time of an instruction.
void charge_for(lua_State* state, const View& view) {
  ModuleState::of(state).charge(state, view.count / 16 + 1);
}

template <class Fold>
int fold(lua_State* state, Fold each) {
  const View& view = view_at(state, 1);
  const auto bytes = bytes_of(state, view);
  charge_for(state, view);
  with_type(view.element, [&](auto typed) {
    using T = decltype(typed);
    each(state, T{}, bytes.data(), view.count);
  });
  return 1;
}

int view_sum(lua_State* state) {
  return fold(state, [](lua_State* to, auto typed, const std::byte* from, std::size_t count) {
    using T = decltype(typed);
    using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
    Sum sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<Sum>(load<T>(from + i * sizeof(T)));
    push_value(to, sum);
  });
}

template <class Better>
int best(lua_State* state, Better is_better) {
  return fold(state, [is_better](lua_State* to, auto typed, const std::byte* from, std::size_t count) {
    using T = decltype(typed);
    if (count == 0) return lua_pushnil(to);
    T found = load<T>(from);
    for (std::size_t i = 1; i < count; ++i)
      if (const T one = load<T>(from + i * sizeof(T)); is_better(one, found)) found = one;
    push_value(to, found);
  });
}
int view_min(lua_State* state) {
  return best(state, [](auto one, auto other) { return one < other; });
}
int view_max(lua_State* state) {
  return best(state, [](auto one, auto other) { return one > other; });
}

int view_fill(lua_State* state) {
  const View& view = view_at(state, 1);
  writable(state, *view.message);
  charge_for(state, view);
  const auto bytes = bytes_of(state, view);
  if (view.count == 0) return 0;
  store(state, view.element, bytes.data(), 2);
  for (std::size_t done = view.bytes_each(); done < bytes.size(); done *= 2)
    std::memcpy(bytes.data() + done, bytes.data(), std::min(done, bytes.size() - done));
  return 0;
}

/// view:combine(operation, other): each element becomes the result of both.
int view_combine(lua_State* state) {
  static constexpr std::array<const char*, 9> kNames = {"min", "max", "sum", "product", "copy",
                                                        "or",  "and", "xor", nullptr};
  static constexpr std::array kOperations = {
      AtomicOperation::kMin,  AtomicOperation::kMax,   AtomicOperation::kSum,    AtomicOperation::kProduct,
      AtomicOperation::kSwap, AtomicOperation::kBitOr, AtomicOperation::kBitAnd, AtomicOperation::kBitXor};
  const View& to = view_at(state, 1);
  const AtomicOperation operation =
      kOperations[static_cast<std::size_t>(luaL_checkoption(state, 2, nullptr, kNames.data()))];
  const View& from = view_at(state, 3);
  writable(state, *to.message);
  charge_for(state, to);
  if (to.element != from.element || to.count != from.count)
    luaL_error(state, "both views must have the same type and length");
  const auto target = bytes_of(state, to);
  const auto source = bytes_of(state, from);
  if (operation == AtomicOperation::kSwap) {
    std::memmove(target.data(), source.data(), target.size());
    return 0;
  }
  if (!is_supported(operation, to.type())) luaL_error(state, "this type has no such operation");
  if (target.data() < source.data() + source.size() && source.data() < target.data() + target.size())
    luaL_error(state, "the views overlap");
  apply(operation, to.type(), {}, source, target);
  return 0;
}

// Messages.

int message_view(lua_State* state) {
  LuaMessage& message = message_at(state, 1);
  const auto element = static_cast<Element>(luaL_checkoption(state, 2, nullptr, kElementNames.data()));
  View view{&message, element, 0, 0};
  const std::size_t there = message.message->payload().size() / view.bytes_each();
  const lua_Integer first = luaL_optinteger(state, 3, 1);
  if (first < 1 || static_cast<std::uint64_t>(first) > there + 1)
    luaL_error(state, "the message has %I elements of that type", static_cast<LUAI_UACINT>(there));
  const std::size_t left = there - static_cast<std::size_t>(first - 1);
  const lua_Integer count = luaL_optinteger(state, 4, static_cast<lua_Integer>(left));
  if (count < 0 || static_cast<std::uint64_t>(count) > left)
    luaL_error(state, "the message has %I elements of that type", static_cast<LUAI_UACINT>(there));
  view.offset_bytes = static_cast<std::size_t>(first - 1) * view.bytes_each();
  view.count = static_cast<std::size_t>(count);
  new (lua_newuserdatauv(state, sizeof(View), 1)) View(view);
  lua_pushvalue(state, 1);
  lua_setiuservalue(state, -2, 1);
  luaL_setmetatable(state, "view");
  return 1;
}

int message_text(lua_State* state) {
  const std::string_view text = at(state, 1).text();
  ModuleState::of(state).charge(state, text.size() / 64 + 1);
  lua_pushlstring(state, text.data(), text.size());
  return 1;
}

/// message:put(text [, offset]): writes the text into the payload, from the byte `offset` on (1: the first).
int message_put(lua_State* state) {
  ModuleMessage& message = writable(state, message_at(state, 1));
  std::size_t length = 0;
  const char* const text = luaL_checklstring(state, 2, &length);
  const lua_Integer offset = luaL_optinteger(state, 3, 1);
  const auto payload = message.payload();
  if (offset < 1 || static_cast<std::uint64_t>(offset - 1) > payload.size() ||
      length > payload.size() - static_cast<std::size_t>(offset - 1))
    luaL_error(state, "the text does not fit the message's %I bytes",
               static_cast<LUAI_UACINT>(payload.size()));
  ModuleState::of(state).charge(state, length / 64 + 1);
  if (length > 0) std::memcpy(payload.data() + offset - 1, text, length);
  return 0;
}

/// Where sends and deliveries of this activation go. Leaves by an error if there may be no more.
ModuleOutput& output_of(lua_State* state) {
  ModuleState& module = ModuleState::of(state);
  ModuleOutput* const output = module.output();
  if (output == nullptr) luaL_error(state, "nothing can be sent while the module is loaded");
  if (output->sends.size() + output->deliveries.size() >= module.budgets().sends)
    luaL_error(state, "it has used up its %I sends", static_cast<LUAI_UACINT>(module.budgets().sends));
  module.charge(state, 20);
  return *output;
}

template <class Vector, class Value>
bool append(Vector& vector, Value&& value) noexcept {
  try {
    vector.push_back(std::forward<Value>(value));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

int message_send(lua_State* state) {
  LuaMessage& message = message_at(state, 1);
  const lua_Integer rank = luaL_checkinteger(state, 2);
  const std::uint32_t size = ModuleState::of(state).place().size;
  if (rank < 0 || rank >= static_cast<lua_Integer>(size))
    luaL_error(state, "there is no rank %I: the group has %I", static_cast<LUAI_UACINT>(rank),
               static_cast<LUAI_UACINT>(size));
  ModuleOutput& output = output_of(state);
  if (!append(output.sends, ModuleOutput::Sent{static_cast<std::uint32_t>(rank), message.message}))
    luaL_error(state, "there is no memory");
  message.message->charge_to(ModuleState::of(state).account());
  message.message->fix();
  return 0;
}

int message_deliver(lua_State* state) {
  LuaMessage& message = message_at(state, 1);
  if (!append(output_of(state).deliveries, message.message)) luaL_error(state, "there is no memory");
  message.message->charge_to(ModuleState::of(state).account());
  message.message->fix();
  return 0;
}

int message_keep(lua_State* state) {
  LuaMessage& message = message_at(state, 1);
  message.is_kept = true;
  message.message->charge_to(ModuleState::of(state).account());
  lua_settop(state, 1);
  return 1;
}

int message_release(lua_State* state) {
  LuaMessage& message = message_at(state, 1);
  message.message.reset();
  return 0;
}

int message_collected(lua_State* state) {
  LuaMessage*& one = *static_cast<LuaMessage**>(lua_touserdata(state, 1));
  if (one != nullptr) ModuleState::of(state).forget(*std::exchange(one, nullptr));
  return 0;
}

int message_index(lua_State* state) {
  const std::string_view key = luaL_checklstring(state, 2, nullptr);
  const bool is_field = key == "root" || key == "tag" || key == "source" || key == "length";
  if (!is_field) return push_method(state, kMessageMethods);
  ModuleMessage& message = at(state, 1);
  const ModuleHeader& header = message.header();
  lua_Integer value = 0;
  if (key == "root")
    value = header.root;
  else if (key == "tag")
    value = header.tag;
  else if (key == "source")
    value = header.source;
  else
    value = static_cast<lua_Integer>(message.payload().size());
  lua_pushinteger(state, value);
  return 1;
}

/// new(bytes [, tag [, root]]): a message of this module, cleared.
int new_message(lua_State* state) {
  ModuleState& module = ModuleState::of(state);
  const lua_Integer bytes = luaL_checkinteger(state, 1);
  const lua_Integer tag = luaL_optinteger(state, 2, 0);
  const lua_Integer root = luaL_optinteger(state, 3, module.place().rank);
  if (bytes < 0 || bytes > static_cast<lua_Integer>(kMostModulePayload))
    luaL_argerror(state, 1, "a message has 0 to 16777216 bytes");
  if (tag < 0 || tag > std::numeric_limits<std::int32_t>::max())
    luaL_argerror(state, 2, "a tag is 0 to 2147483647");
  if (root < 0 || root >= static_cast<lua_Integer>(module.place().size))
    luaL_argerror(state, 3, "the root is a rank of the group");
  if (*module.account() + static_cast<std::size_t>(bytes) > module.budgets().block_bytes)
    luaL_error(state, "it has used up its %I bytes of messages",
               static_cast<LUAI_UACINT>(module.budgets().block_bytes));
  module.charge(state, static_cast<std::uint64_t>(bytes) / 256 + 20);
  LuaMessage* const made = module.push_message(state);
  if (made == nullptr) luaL_error(state, "there is no memory");
  made->message =
      ModuleMessage::make(static_cast<std::size_t>(bytes), module.account(), ModuleMessage::Contents::kZeros);
  if (made->message == nullptr) luaL_error(state, "there is no memory");
  ModuleHeader& header = made->message->header();
  header.root = static_cast<std::uint32_t>(root);
  header.tag = static_cast<std::uint32_t>(tag);
  header.source = module.place().rank;
  return 1;
}

/// log(value, ...): a line for the user.
int log_line(lua_State* state) {
  ModuleState& module = ModuleState::of(state);
  ModuleOutput* const output = module.output();
  const int count = lua_gettop(state);
  if (output == nullptr || output->lines.size() >= module.budgets().lines) return 0;
  std::array<char, kMostModuleLine> line;
  std::size_t length = 0;
  for (int i = 1; i <= count && length < line.size(); ++i) {
    std::size_t part = 0;
    const char* const text = luaL_tolstring(state, i, &part);
    if (i > 1) line[length++] = ' ';
    part = std::min(part, line.size() - length);
    std::memcpy(line.data() + length, text, part);
    length += part;
    lua_settop(state, count);
  }
  // It goes to a terminal.
  std::replace_if(
      line.begin(), line.begin() + static_cast<std::ptrdiff_t>(length),
      [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  bool has_memory = true;
  try {
    output->lines.emplace_back(line.data(), length);
  } catch (const std::bad_alloc&) {
    has_memory = false;
  }
  if (!has_memory) luaL_error(state, "there is no memory");
  return 0;
}

}  // namespace

void open_module_values(lua_State* state) {
  // What Lua itself calls is apart from what a module's text can name: a finalizer must run once.
  static const luaL_Reg kMessageEvents[] = {
      {"__gc", message_collected}, {"__index", message_index}, {nullptr, nullptr}};
  static const luaL_Reg kMessage[] = {{"view", message_view},       {"text", message_text},
                                      {"put", message_put},         {"send", message_send},
                                      {"deliver", message_deliver}, {"keep", message_keep},
                                      {"release", message_release}, {nullptr, nullptr}};
  static const luaL_Reg kViewEvents[] = {
      {"__index", view_index}, {"__newindex", view_set}, {"__len", view_length}, {nullptr, nullptr}};
  static const luaL_Reg kView[] = {{"sum", view_sum},   {"min", view_min},         {"max", view_max},
                                   {"fill", view_fill}, {"combine", view_combine}, {nullptr, nullptr}};
  luaL_newmetatable(state, "message");
  luaL_setfuncs(state, kMessageEvents, 0);
  luaL_newmetatable(state, "view");
  luaL_setfuncs(state, kViewEvents, 0);
  lua_createtable(state, 0, 7);
  luaL_setfuncs(state, kMessage, 0);
  lua_setfield(state, LUA_REGISTRYINDEX, kMessageMethods);
  lua_createtable(state, 0, 5);
  luaL_setfuncs(state, kView, 0);
  lua_setfield(state, LUA_REGISTRYINDEX, kViewMethods);
  lua_pushcclosure(state, new_message, 0);
  lua_setglobal(state, "new");
  lua_pushcclosure(state, log_line, 0);
  lua_setglobal(state, "log");
}

}  // namespace ch3_offload
