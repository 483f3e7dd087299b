// A module with any text: statements that an input puts together from calls and values of all kinds, or a text as
// it stands. Input: a byte that says which; the statements or the text; messages to it.
//
// Time is no budget here, as a run must be the same each time; instructions, memory, sends and lines are.

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/target.h"
#include "modules/module.h"

namespace ch3_offload::fuzz {
namespace module_target {

constexpr ModulePlace kPlace{2, 5};

// $1, $2, $3: values.
constexpr std::array kStatements = {
    "a = $1",
    "b = $1",
    "c = $1",
    "a, b, c = b, c, a",
    "a = new($1, $2, $3)",
    "b = new($1)",
    "c = a:view($1, $2, $3)",
    "c = m:view($1)",
    "a = c:sum() b = c:min()",
    "c:fill($1)",
    "c:combine($1, m:view($2))",
    "c:combine($1, c)",
    "c[$1] = $2",
    "a = c[$1]",
    "a = #c",
    "a:send($1)",
    "m:send($1)",
    "a:deliver()",
    "m:deliver()",
    "kept = m:keep()",
    "kept = a:keep()",
    "if kept then a = kept end",
    "a:release()",
    "m:release()",
    "a:put($1, $2)",
    "b = a:text()",
    "log($1, $2, $3)",
    "a = tree.children($1, $2, $3)",
    "a = tree.knomial_children($1, $2, $3)",
    "b = tree.parent($1, $2, $3)",
    "b = tree.knomial_parent($1, $2, $3)",
    "a = {} for i = 1, $1 do a[i] = $2 end",
    "for k, v in pairs(a) do c = v end",
    "b = b .. b .. $1",
    "a = m.$1",
    "a = string.format($1, $2, $3)",
    "b = table.concat(a, $1)",
    "a = select($1, $2, $3)",
    "error($1)",
    "a.view(b, $1)",
    "m.send(a, $1)",
    "rawset(a, $1, $2)",
    "while $1 do b = $2 end",
    "local function f(x) if x then return f($1) end return x + 1 end a = f($2)",
};
constexpr std::array kValues = {
    "0",
    "1",
    "2",
    "5",
    "-1",
    "8",
    "16777216",
    "16777217",
    "1e308",
    "-1e308",
    "0/0",
    "1/0",
    "2^53",
    "math.maxinteger",
    "math.mininteger",
    "0.5",
    "nil",
    "true",
    "false",
    "m",
    "a",
    "b",
    "c",
    "kept",
    "''",
    "'x'",
    "'uint8'",
    "'int16'",
    "'float64'",
    "'uint64'",
    "'sum'",
    "'copy'",
    "'%99d%s'",
    "'\\0'",
    "tag",
    "root",
    "{}",
    "{m, a}",
    "log",
    "rank",
    "size",
    "length",
    "function() end",
};

std::string text_of(Input& input) {
  std::string text;
  for (std::uint8_t left = input.u8(); left > 0 && !input.empty(); --left) {
    std::string statement = kStatements[input.below(kStatements.size())];
    for (const char* const place : {"$1", "$2", "$3"})
      if (const auto at = statement.find(place); at != std::string::npos)
        statement.replace(at, 2, kValues[input.below(kValues.size())]);
    text += statement + "\n";
  }
  return "local kept, tag, root, length, a, b, c\nfunction on_message(m)\n" + text + "end";
}

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  std::string text;
  const bool is_made = input.flag();
  if (is_made) {
    text = text_of(input);
  } else {
    const auto given = input.bytes(input.u16());
    text.assign(reinterpret_cast<const char*>(given.data()), given.size());
  }
  ModuleBudgets budgets;
  budgets.memory_bytes = 200'000;
  budgets.block_bytes = std::size_t{1} << 20;
  budgets.instructions = 5'000;
  budgets.activation_ns = UINT64_MAX / 4;
  budgets.sends = 20;
  budgets.lines = 5;
  const auto account = std::make_shared<std::size_t>(0);
  {
    std::string error;
    const std::unique_ptr<Module> module = Module::load("fuzzed", text, kPlace, budgets, error);
    require((module == nullptr) == !error.empty(), "what is not loaded has a reason");
    for (int i = 0; module != nullptr && i < 4; ++i) {
      const auto payload = input.bytes(input.u8());
      const auto message = ModuleMessage::make(payload.size(), account);
      if (!payload.empty()) std::memcpy(message->payload().data(), payload.data(), payload.size());
      message->header().root = input.below(5);
      message->header().tag = input.u16();
      ModuleOutput output;
      const bool is_good = module->due_ns() != UINT64_MAX && input.below(2) == 1
                               ? module->fire(output, error)
                               : module->activate(message, output, error);
      require(is_good == error.empty(), "a failure has a reason");
      require(is_good || (output.sends.empty() && output.deliveries.empty()), "what fails sends nothing");
      require(output.sends.size() + output.deliveries.size() <= budgets.sends, "sends are counted");
      require(output.lines.size() <= budgets.lines, "lines are counted");
      require(module->use().memory_bytes <= budgets.memory_bytes, "memory is counted");
      for (const std::string& line : output.lines)
        for (const char one : line)
          require(static_cast<unsigned char>(one) >= ' ' && one != 127, "a line is one");
      for (const ModuleOutput::Sent& one : output.sends) {
        require(one.rank < kPlace.size, "it sends to its group");
        require(one.message->is_fixed() && one.message->header().root < kPlace.size, "what is sent is sound");
        touch(one.message->whole());
      }
      for (const auto& one : output.deliveries) touch(one->whole());
      if (!is_good) break;
    }
  }
  require(*account == 0, "no message is left behind");
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const char* const text : {"function on_message(m) m:send(1) m:deliver() end", "x = = 1",
                                 "function on_message(m) while true do end end",
                                 "local t = {} function on_message(m) t[#t + 1] = m:keep() end",
                                 "function on_message(m) local n = new(16, m.tag, m.root) "
                                 "n:view('float64'):fill(1) n:send(m.root) end"})
    all.push_back(Seed()
                      .u8(0)
                      .u16(static_cast<std::uint16_t>(std::string_view(text).size()))
                      .text(text)
                      .u8(8)
                      .text("12345678")
                      .u8(1)
                      .u16(7)
                      .done());
  for (std::size_t first = 0; first < kStatements.size(); ++first)
    for (std::uint8_t value = 0; value < kValues.size(); ++value) {
      Seed seed;
      // A message and a view of it, then the statement, with values that differ.
      seed.u8(1).u8(4).u8(0).u8(19).u8(7).u8(26).u8(static_cast<std::uint8_t>(first));
      seed.u8(value)
          .u8(static_cast<std::uint8_t>(value * 7 + 3))
          .u8(static_cast<std::uint8_t>(value * 5 + 1));
      all.push_back(
          seed.u8(static_cast<std::uint8_t>(15 + first % 5)).u8(1).u8(16).text("0123456789abcdef").done());
    }
  return all;
}

const Target kTarget("module", run, seeds);

}  // namespace module_target
}  // namespace ch3_offload::fuzz
