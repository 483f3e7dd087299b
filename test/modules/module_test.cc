// Modules: what their text can do, and what it cannot.

#include "modules/module.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace ch3_offload {
namespace module_test {

class Modules : public testing::Test {
 protected:
  /// The error of loading it; "": none.
  std::string load(const std::string& text) {
    std::string error;
    module_ = Module::load("m", text, {2, 5}, budgets_, error);
    EXPECT_EQ(module_ == nullptr, !error.empty());
    return error;
  }
  /// As the body of on_message(m).
  std::string load_body(const std::string& body) { return load("function on_message(m) " + body + "\nend"); }

  std::shared_ptr<ModuleMessage> message(const std::string& payload = "") {
    auto made = ModuleMessage::make(payload.size(), account_);
    if (!payload.empty()) std::memcpy(made->payload().data(), payload.data(), payload.size());
    made->header().root = 1;
    made->header().source = 3;
    made->header().tag = 44;
    return made;
  }
  /// The error of an activation; "": none.
  std::string run(const std::string& payload = "") {
    output_ = {};
    std::string error;
    auto made = message(payload);
    last_ = made;
    const bool is_good = module_->activate(std::move(made), output_, error);
    EXPECT_EQ(is_good, error.empty());
    return error;
  }
  /// What such a body says by log().
  std::vector<std::string> said(const std::string& body, const std::string& payload = "") {
    EXPECT_EQ(load_body(body), "");
    EXPECT_EQ(run(payload), "");
    return output_.lines;
  }
  std::string one_said(const std::string& body, const std::string& payload = "") {
    const auto lines = said(body, payload);
    return lines.size() == 1 ? lines.front() : "(" + std::to_string(lines.size()) + " lines)";
  }
  /// The error of running such a body.
  std::string failed(const std::string& body, const std::string& payload = "") {
    EXPECT_EQ(load_body(body), "");
    return run(payload);
  }

  /// Time is no budget unless a test is about it: machines and sanitizers are slow.
  ModuleBudgets budgets_{.activation_ns = std::uint64_t{100} * 1'000'000'000};
  BlockAccount account_ = std::make_shared<std::size_t>(0);
  std::unique_ptr<Module> module_;
  ModuleOutput output_;
  std::weak_ptr<ModuleMessage> last_;  ///< The last one that was given.
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Modules, AreLoadedWithAnErrorThatNamesTheLine) {
  EXPECT_TRUE(has(load("x = 1\ny = = 2"), "m:2:"));
  EXPECT_TRUE(has(load("x = 1\nnothing()"), "m:2:"));
  EXPECT_EQ(load("x = 1"), "it has no function on_message(message)");
  EXPECT_EQ(load("on_message = 7"), "it has no function on_message(message)");
}

TEST_F(Modules, HaveNamesOfAFewCharacters) {
  std::string error;
  const char* const text = "function on_message() end";
  for (const char* const good : {"a", "A-b_c.9", "abcdefghijabcdefghijabcdefghijabcdefghij"})
    EXPECT_NE(Module::load(good, text, {}, {}, error), nullptr) << good;
  for (const char* const bad : {"", "a b", "a/b", "\xc3\xa4", "abcdefghijabcdefghijabcdefghijabcdefghijk"})
    EXPECT_EQ(Module::load(bad, text, {}, {}, error), nullptr) << bad;
}

TEST_F(Modules, AreTextAndNotTooLong) {
  EXPECT_TRUE(has(load("\x1bLua"), "binary"));
  EXPECT_TRUE(has(load(std::string(kMostModuleSource + 1, ' ')), "65537 bytes"));
}

TEST_F(Modules, FindNothingThatReachesOutsideOrNeverReturns) {
  for (const char* const gone : {"load",
                                 "loadstring",
                                 "dofile",
                                 "require",
                                 "pcall",
                                 "xpcall",
                                 "coroutine",
                                 "io",
                                 "os",
                                 "debug",
                                 "package",
                                 "setmetatable",
                                 "getmetatable",
                                 "collectgarbage",
                                 "print",
                                 "_G",
                                 "utf8",
                                 "string.rep",
                                 "string.find",
                                 "string.match",
                                 "string.gmatch",
                                 "string.gsub",
                                 "string.dump",
                                 "string.pack",
                                 "string.unpack",
                                 "table.move",
                                 "table.sort",
                                 "table.insert",
                                 "table.remove",
                                 "table.pack",
                                 "math.randomseed"})
    EXPECT_EQ(one_said(std::string("log(") + gone + ")"), "nil") << gone;
  EXPECT_TRUE(has(failed("return ('x'):rep(9)"), "nil value"));
  EXPECT_EQ(one_said("log(('abc'):upper(), #'abc', math.max(1, 2), table.concat({1, 2}, '+'))"),
            "ABC 3 2 1+2");
}

TEST_F(Modules, CannotCallWhatLuaCallsOfTheirValues) {
  EXPECT_EQ(
      one_said(
          "local v = m:view('uint8') log(m.__gc, m.__index, m.__name, v.__index, v.__len, v.__newindex)"),
      "nil nil nil nil nil nil");
  EXPECT_NE(failed("m:text().x = 1"), "");
  EXPECT_NE(failed("m.tag = 1"), "");
  EXPECT_NE(failed("rawset(m, 'tag', 1)"), "");
}

TEST_F(Modules, WithHardlyAnyMemoryFailAndHarmNobody) {
  int loaded = 0;
  for (budgets_.memory_bytes = 0; budgets_.memory_bytes < 40'000; budgets_.memory_bytes += 61) {
    std::string error;
    module_ = Module::load("m", "function on_message(m) log(new(8):view('uint8'):sum() .. m:text()) end",
                           {2, 5}, budgets_, error);
    if (module_ == nullptr) continue;
    ++loaded;
    std::string problem;
    output_ = {};
    const bool is_good = module_->activate(message("abc"), output_, problem);
    EXPECT_EQ(problem, is_good ? "" : "it has used up its memory");
  }
  EXPECT_GT(loaded, 10);
}

TEST_F(Modules, KnowTheirPlace) { EXPECT_EQ(one_said("log(rank, size, name)"), "2 5 m"); }

TEST_F(Modules, KeepTheirGlobalsFromOneMessageToTheNext) {
  ASSERT_EQ(load("n = 0; function on_message() n = n + 1; log(n) end"), "");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(output_.lines, std::vector<std::string>{"2"});
  EXPECT_EQ(module_->use().activations, 2U);
}

// Budgets.

TEST_F(Modules, ThatLoopForEverAreStopped) {
  EXPECT_TRUE(has(failed("while true do end"), "200000 instructions"));
  EXPECT_TRUE(has(load("while true do end"), "instructions"));
  EXPECT_TRUE(has(failed("local function f() return f() end f()"), "instructions"));
}

TEST_F(Modules, ThatWorkInsideCForLongAreStoppedByTime) {
  budgets_.activation_ns = ModuleBudgets().activation_ns;
  budgets_.instructions = UINT64_MAX / 2;
  budgets_.memory_bytes = std::size_t{16} << 20;
  // Each look for the next member walks over all that are empty.
  const std::string problem = failed(
      "local t = {} for i = 1, 100000 do t[i .. ''] = 1 end for k in pairs(t) do t[k] = nil end "
      "while true do next(t) end");
  EXPECT_TRUE(has(problem, "50000 microseconds")) << problem;
}

TEST_F(Modules, ThatUseUpMemoryAreStopped) {
  EXPECT_EQ(failed("local t = {} for i = 1, 1e9 do t[i] = i end"), "it has used up its memory");
  EXPECT_EQ(failed("local s = 'x' while true do s = s .. s end"), "it has used up its memory");
  EXPECT_LT(module_->use().memory_bytes, budgets_.memory_bytes);
}

TEST_F(Modules, ThatRecurseAreStopped) {
  EXPECT_NE(failed("local function f() return 1 + f() end f()"), "");
  EXPECT_NE(load("x = " + std::string(10'000, '(')), "");
}

TEST_F(Modules, ThatSendTooMuchAreStoppedAndNothingIsSent) {
  EXPECT_TRUE(has(failed("for i = 1, 5000 do m:send(0) end"), "4096 sends"));
  EXPECT_TRUE(output_.sends.empty());
  EXPECT_TRUE(has(failed("m:send(0) m:deliver() error('no more')"), "no more"));
  EXPECT_TRUE(output_.sends.empty());
  EXPECT_TRUE(output_.deliveries.empty());
}

TEST_F(Modules, ThatHoldTooManyBytesAreStopped) {
  EXPECT_TRUE(has(failed("for i = 1, 3 do new(16777216) end"), "bytes of messages"));
  EXPECT_TRUE(has(failed("new(16777217)"), "16777216 bytes"));
  EXPECT_TRUE(has(failed("new(-1)"), "16777216 bytes"));
}

TEST_F(Modules, PayForTheMessagesOfOthersThatTheyKeep) {
  budgets_.block_bytes = 1000;
  ASSERT_EQ(load("all = {} function on_message(m) all[#all + 1] = m:keep() end"), "");
  EXPECT_EQ(run(std::string(900, 'x')), "");
  EXPECT_TRUE(has(run(std::string(200, 'x')), "1000 bytes of messages"));
}

TEST_F(Modules, WalkNoViewInsideC) {
  budgets_.instructions = UINT64_MAX / 2;
  EXPECT_TRUE(has(failed("table.concat(new(1048576):view('uint8'), '')"), "a table was expected"));
  EXPECT_TRUE(has(failed("table.unpack(new(8):view('uint8'))"), "a table was expected"));
  EXPECT_EQ(one_said("log(table.concat({'a', 'b'}, '-', 1, 2), (select('#', table.unpack({1, 2, 3}))))"),
            "a-b 3");
  EXPECT_EQ(
      failed("local s = ('x'):byte() local t = {} for i = 1, 40000 do t[i] = 'y' end s = table.concat(t)"),
      "it has used up its memory");  // Beyond 32 KiB.
}

TEST_F(Modules, WhoseFinalizersDoNotRunHarmNobody) {
  // Nearly no stack is left when the collector comes.
  const char* const text =
      "local function deep(n) if n > 0 then return 1 + deep(n - 1) end "
      "for i = 1, 20 do new(8) end local t = {} for i = 1, 3000 do t[i] = {i} end return 0 end "
      "function on_message(m) deep(tonumber(m:text())) end";
  for (int depth = 0; depth < 190; ++depth) {
    budgets_.memory_bytes = 150'000;
    ASSERT_EQ(load(text), "");
    static_cast<void>(run(std::to_string(depth)));
    output_ = {};
  }
  module_.reset();
  EXPECT_EQ(*account_, 0U);
}

TEST_F(Modules, SayAFewShortLines) {
  EXPECT_EQ(said("for i = 1, 99 do log(i) end").size(), 16U);
  EXPECT_EQ(one_said("local s = 'abcdefghij' s = s .. s .. s s = s .. s .. s .. s log(s, s)").size(),
            kMostModuleLine);
  EXPECT_EQ(one_said("log('a\\27[31m\\n\\0b', nil, true)"), "a [31m  b nil true");
}

TEST_F(Modules, FailWithWhateverTheyRaise) {
  EXPECT_TRUE(has(failed("error('why')"), "m:1: why"));
  EXPECT_EQ(failed("error({})"), "an error");
  EXPECT_EQ(failed("error()"), "an error");
  EXPECT_EQ(failed("m:send(0) error('', 0)"), "an error");
  EXPECT_TRUE(output_.sends.empty());
}

// Messages.

TEST_F(Modules, SeeWhatComesWithAMessage) {
  EXPECT_EQ(one_said("log(m.root, m.source, m.tag, m.length, m:text(), m.colour)", "hello"),
            "1 3 44 5 hello nil");
}

TEST_F(Modules, SendBeforeTheyDeliverAndShareTheBlock) {
  ASSERT_EQ(load_body("m:deliver() m:send(4) m:send(0)"), "");
  ASSERT_EQ(run("abc"), "");
  ASSERT_EQ(output_.sends.size(), 2U);
  ASSERT_EQ(output_.deliveries.size(), 1U);
  EXPECT_EQ(output_.sends[0].rank, 4U);
  EXPECT_EQ(output_.sends[1].rank, 0U);
  EXPECT_EQ(output_.sends[0].message, output_.deliveries[0]);
  EXPECT_FALSE(last_.expired());
  output_ = {};
  EXPECT_TRUE(last_.expired());  // Whatever Lua's collector has done.
}

TEST_F(Modules, SendToRanksOfTheGroupAlone) {
  EXPECT_TRUE(has(failed("m:send(5)"), "there is no rank 5: the group has 5"));
  EXPECT_TRUE(has(failed("m:send(-1)"), "there is no rank -1"));
  EXPECT_NE(failed("m:send('x')"), "");
  EXPECT_NE(failed("m.send(7, 0)"), "");
  EXPECT_TRUE(has(load("new(8):send(0) function on_message() end"), "nothing can be sent"));
}

TEST_F(Modules, MakeMessages) {
  ASSERT_EQ(
      load_body("local n = new(4, 7, 3) n:put('abc', 2) n:send(1) log(n.tag, n.root, n.source, n.length)"),
      "");
  ASSERT_EQ(run(), "");
  ASSERT_EQ(output_.sends.size(), 1U);
  EXPECT_EQ(output_.sends[0].message->text(), std::string_view("\0abc", 4));
  EXPECT_EQ(output_.lines[0], "7 3 2 4");
  EXPECT_EQ(one_said("local n = new(0) log(n.tag, n.root)"), "0 2");
  EXPECT_NE(failed("new(4, -1)"), "");
  EXPECT_NE(failed("new(4, 0, 5)"), "");
  EXPECT_TRUE(has(failed("new(4):put('abcde')"), "does not fit"));
  EXPECT_TRUE(has(failed("new(4):put('', 6)"), "does not fit"));
  EXPECT_TRUE(has(failed("new(4):put('a', 0)"), "does not fit"));
}

TEST_F(Modules, ChangeNothingThatWasSent) {
  EXPECT_TRUE(has(failed("m:send(0) m:put('x')", "abc"), "sent or delivered"));
  EXPECT_TRUE(has(failed("local v = m:view('uint8') m:deliver() v[1] = 1", "abc"), "sent or delivered"));
  EXPECT_TRUE(has(failed("local v = m:view('uint8') m:deliver() v:fill(1)", "abc"), "sent or delivered"));
  EXPECT_EQ(one_said("m:send(0) log(m:view('uint8')[1])", "a"), "97");
}

TEST_F(Modules, LoseMessagesThatTheyDoNotKeep) {
  ASSERT_EQ(load("function on_message(m) if old then log(old:text()) end old = m end"), "");
  EXPECT_EQ(run("abc"), "");
  EXPECT_TRUE(last_.expired());
  EXPECT_TRUE(has(run("d"), "keep()"));
  ASSERT_EQ(load("function on_message(m) if v then log(v[1]) end v = m:view('uint8') end"), "");
  EXPECT_EQ(run("abc"), "");
  EXPECT_TRUE(has(run("d"), "gone"));
}

TEST_F(Modules, KeepMessagesUntilTheyReleaseThem) {
  ASSERT_EQ(load("function on_message(m) if old then log(old:text()) old:release() end old = m:keep() end"),
            "");
  EXPECT_EQ(run("abc"), "");
  const auto first = last_;
  EXPECT_FALSE(first.expired());
  EXPECT_EQ(run("de"), "");
  EXPECT_EQ(output_.lines, std::vector<std::string>{"abc"});
  EXPECT_TRUE(first.expired());
  EXPECT_FALSE(last_.expired());
  module_.reset();
  EXPECT_TRUE(last_.expired());
}

// Views.

TEST_F(Modules, ReadAndWriteNumbers) {
  EXPECT_EQ(one_said("local n = new(16) "
                     "n:view('int8')[1] = -1 n:view('uint16')[2] = 65535 n:view('int32')[2] = -7 "
                     "n:view('float32')[3] = 0.5 n:view('uint8')[13] = 256 + 9 "
                     "log(n:view('uint8')[1], n:view('int16')[2], n:view('int64')[1], n:view('float32')[3], "
                     "n:view('uint32')[4], #n:view('float64'))"),
            "255 -1 -25769869057 0.5 9 2");
  EXPECT_EQ(one_said("local v = new(8):view('float64') v[1] = 1.5 log(v[1])"), "1.5");
  EXPECT_EQ(one_said("local v = new(8):view('uint64') v[1] = -1 log(v[1])"), "-1");
}

TEST_F(Modules, ViewPartsOfAMessage) {
  EXPECT_EQ(
      one_said("local v = m:view('uint8', 2, 3) log(#v, v[1], v[3], #m:view('uint16'), #m:view('uint8', 7))",
               "abcdef"),
      "3 98 100 3 0");
  EXPECT_TRUE(has(failed("m:view('uint8', 8)", "abcdef"), "6 elements"));
  EXPECT_TRUE(has(failed("m:view('uint8', 0)", "abcdef"), "6 elements"));
  EXPECT_TRUE(has(failed("m:view('uint8', 3, 5)", "abcdef"), "6 elements"));
  EXPECT_TRUE(has(failed("m:view('uint8', 3, -1)", "abcdef"), "6 elements"));
  EXPECT_TRUE(has(failed("m:view('int7')", "abcdef"), "int7"));
  for (const char* const index : {"0", "4", "-1", "math.maxinteger", "math.mininteger"}) {
    EXPECT_TRUE(has(failed(std::string("local v = m:view('uint8', 2, 3) log(v[") + index + "])", "abcdef"),
                    "no element"))
        << index;
    EXPECT_TRUE(has(failed(std::string("local v = m:view('uint8', 2, 3) v[") + index + "] = 1", "abcdef"),
                    "no element"))
        << index;
  }
  EXPECT_NE(failed("m:view('uint8')[1.5] = 1", "abcdef"), "");
  EXPECT_NE(failed("m:view('uint8')[1] = 'x'", "abcdef"), "");
  EXPECT_NE(failed("m:view('uint8').sum(m)", "abcdef"), "");
}

TEST_F(Modules, SumAndCompareWithoutALoop) {
  EXPECT_EQ(one_said("local v = m:view('uint8') log(v:sum(), v:min(), v:max())", "acb"), "294 97 99");
  EXPECT_EQ(one_said("local v = m:view('uint8') log(v:sum(), v:min(), v:max())"), "0 nil nil");
  EXPECT_EQ(one_said("local v = new(16):view('float64') v:fill(1.25) log(v:sum(), #v)"), "2.5 2");
}

TEST_F(Modules, CombineViews) {
  const std::string make = "local a, b = new(16):view('int32'), new(16):view('int32') a:fill(6) b:fill(-3) ";
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"sum", "3"},   {"product", "-18"}, {"min", "-3"}, {"max", "6"},
      {"copy", "-3"}, {"or", "-1"},       {"and", "4"},  {"xor", "-5"}};
  for (const auto& [operation, result] : cases)
    EXPECT_EQ(one_said(make + "a:combine('" + operation + "', b) log(a[4], b[4])"),
              std::string(result) + " -3");
  EXPECT_TRUE(has(failed(make + "a:combine('swap', b)"), "swap"));
  EXPECT_TRUE(has(failed(make + "a:combine('sum', new(16):view('int16'))"), "same type"));
  EXPECT_TRUE(has(failed(make + "a:combine('sum', new(20):view('int32'))"), "same type"));
  EXPECT_TRUE(has(failed("local n = new(16) n:view('int32', 1, 2):combine('sum', n:view('int32', 2, 2))"),
                  "overlap"));
  EXPECT_TRUE(
      has(failed("local v = new(8):view('float64') v:combine('or', new(8):view('float64'))"), "operation"));
}

TEST_F(Modules, PayForWorkInsideC) {
  EXPECT_TRUE(
      has(failed("local v = new(1048576):view('uint8') while true do v:fill(1) end"), "instructions"));
  EXPECT_TRUE(
      has(failed("local v = new(1048576):view('uint8') for i = 1, 99 do v:sum() end"), "instructions"));
}

TEST_F(Modules, FindTheirPlaceInATree) {
  EXPECT_EQ(one_said("local t = tree.children(1, 2) log(#t, tree.parent(1, 2), t[1], t[2])"), "2 1 4 0");
  EXPECT_EQ(one_said("log(tree.parent(2), #tree.children(2, 9), tree.knomial_parent(0, 2, 3), "
                     "#tree.knomial_children(0, 2, 0))"),
            "nil 4 2 3");
  for (const char* const wrong : {"5, 2", "-1, 2", "0, 0", "0, 2, 5", "0, 2, -1", "0, 1e7", "'x'"})
    EXPECT_NE(failed(std::string("tree.children(") + wrong + ")"), "") << wrong;
  EXPECT_NE(failed("tree.knomial_parent(0, 1)"), "");
}

/// The clock stands unless the test moves it.
class ModuleTimers : public testing::Test {
 protected:
  std::string load(const std::string& text) {
    std::string error;
    module_ = Module::load("m", text + " function on_message() end", {2, 5, &now_ns_}, {}, error);
    return error;
  }
  /// What on_timer() says by log(), or its error.
  std::vector<std::string> fire() {
    ModuleOutput output;
    std::string error;
    if (!module_->fire(output, error)) return {error};
    return output.lines;
  }

  std::uint64_t now_ns_ = 5'000'000;
  std::unique_ptr<Module> module_;
};

TEST_F(ModuleTimers, AreDueOnceAndMayBeReplacedOrCancelled) {
  ASSERT_EQ(load("function on_timer() log(clock()) end"), "");
  EXPECT_EQ(module_->due_ns(), UINT64_MAX);
  ASSERT_EQ(load("timer(7) timer(3) function on_timer() log(clock()) end"), "");
  EXPECT_EQ(module_->due_ns(), 8'000'000u);
  now_ns_ = 8'500'000;
  EXPECT_EQ(fire(), std::vector<std::string>{"3.5"});
  EXPECT_EQ(module_->due_ns(), UINT64_MAX);
  ASSERT_EQ(load("timer(7) timer() function on_timer() end"), "");
  EXPECT_EQ(module_->due_ns(), UINT64_MAX);
  ASSERT_EQ(load("timer(1) function on_timer() timer(86400000) end"), "");
  EXPECT_EQ(fire(), std::vector<std::string>{});
  EXPECT_EQ(module_->due_ns(), now_ns_ + 86'400'000'000'000);
  EXPECT_EQ(module_->use().activations, 1u);
}

TEST_F(ModuleTimers, TakeMillisecondsAndNeedTheirFunction) {
  for (const char* const wrong : {"0", "-1", "86400001", "0.5", "'x'", "{}", "1e300"})
    EXPECT_NE(load(std::string("timer(") + wrong + ")"), "") << wrong;
  ASSERT_EQ(load("timer(1)"), "");
  EXPECT_EQ(fire(), std::vector<std::string>{"it has no function on_timer()"});
}

TEST_F(ModuleTimers, SendAndDeliverAsMessagesDo) {
  ASSERT_EQ(load("timer(1) function on_timer() local m = new(8, 9) m:send(4) m:deliver() end"), "");
  ModuleOutput output;
  std::string error;
  ASSERT_TRUE(module_->fire(output, error)) << error;
  ASSERT_EQ(output.sends.size(), 1u);
  EXPECT_EQ(output.sends[0].rank, 4u);
  ASSERT_EQ(output.deliveries.size(), 1u);
  EXPECT_EQ(output.deliveries[0]->header().tag, 9u);
  ASSERT_EQ(load("timer(1) function on_timer() while true do end end"), "");
  EXPECT_TRUE(has(fire().at(0), "instructions"));
}

}  // namespace module_test
}  // namespace ch3_offload
