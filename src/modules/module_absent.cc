// Modules, of a library that was built without Lua: none can be loaded.

#include "modules/module.h"

namespace ch3_offload {

class ModuleState {};

Module::Module(std::unique_ptr<ModuleState> state) noexcept : state_(std::move(state)) {}
Module::~Module() = default;

std::unique_ptr<Module> Module::load(std::string_view, std::string_view, const ModulePlace&,
                                     const ModuleBudgets&, std::string& error) {
  error = "this library was built without Lua (Debian: liblua5.4-dev), so it has no modules";
  return nullptr;
}

bool Module::activate(std::shared_ptr<ModuleMessage>, ModuleOutput&, std::string& error) {
  error = "there is no Lua";
  return false;
}

std::uint64_t Module::due_ns() const noexcept { return UINT64_MAX; }
bool Module::fire(ModuleOutput&, std::string&) { return false; }
ModuleUse Module::use() const noexcept { return {}; }

}  // namespace ch3_offload
