#include "modules/lua_library.h"

#include <dlfcn.h>

#include <mutex>

namespace ch3_offload::lua {
namespace {

#if defined(WITH_ADDRESS_SANITIZER)
constexpr int kApart = 0;  // The sanitizer needs its own functions in the library.
#else
constexpr int kApart = RTLD_DEEPBIND;
#endif

template <class Function>
bool find(void* library, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::string load_now() {
  void* library = nullptr;
  for (const char* const name : {"liblua5.4.so.0", "liblua-5.4.so", "liblua.so.5.4"}) {
    library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | kApart);
    if (library != nullptr) break;
  }
  if (library == nullptr) return "Lua 5.4's library is not on this node (Debian: liblua5.4-0)";
#define CH3_OFFLOAD_LUA_FIND(name) \
  if (!find(library, #name, name)) return "Lua's library has no function " #name;
  CH3_OFFLOAD_LUA_FUNCTIONS(CH3_OFFLOAD_LUA_FIND)
#undef CH3_OFFLOAD_LUA_FIND
  return "";
}

}  // namespace

std::string load_library() {
  static std::once_flag once;
  static std::string problem;
  std::call_once(once, [] { problem = load_now(); });
  return problem;
}

}  // namespace ch3_offload::lua
