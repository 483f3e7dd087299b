// Arguments of active messages: what is appended is read back, and what is not there, or not that, is refused.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "active_messages/ch3_offload_am.h"

namespace {

ch3_offload_am_reader_t reader_of(const ch3_offload_am_arguments_t& arguments) {
  return {arguments.bytes, arguments.length, 0};
}

ch3_offload_am_reader_t reader_of(const std::vector<unsigned char>& bytes) {
  return {bytes.data(), static_cast<std::uint32_t>(bytes.size()), 0};
}

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() { ch3_offload_am_begin(&arguments_); }
  ch3_offload_am_arguments_t arguments_;
};

TEST_F(ArgumentsTest, WhatIsAppendedIsReadBack) {
  ch3_offload_am_name_t name{};
  name.bytes[39] = 7;
  ASSERT_EQ(ch3_offload_am_append_u32(&arguments_, 0xfedcba98), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_u64(&arguments_, 0xfedcba9876543210), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_double(&arguments_, -0.0), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_bytes(&arguments_, "a\0b", 3), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_bytes(&arguments_, nullptr, 0), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_string(&arguments_, "text"), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_string(&arguments_, ""), CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_name(&arguments_, &name), CH3_OFFLOAD_AM_OK);

  ch3_offload_am_reader_t reader = reader_of(arguments_);
  std::uint32_t small = 0;
  std::uint64_t large = 0;
  double real = 1;
  const void* bytes = nullptr;
  std::size_t length = 0;
  const char* string = nullptr;
  ch3_offload_am_name_t its{};
  EXPECT_EQ(ch3_offload_am_read_u32(&reader, &small), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(small, 0xfedcba98);
  EXPECT_EQ(ch3_offload_am_read_u64(&reader, &large), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(large, 0xfedcba9876543210);
  EXPECT_EQ(ch3_offload_am_read_double(&reader, &real), CH3_OFFLOAD_AM_OK);
  EXPECT_TRUE(real == 0 && std::signbit(real));
  EXPECT_EQ(ch3_offload_am_read_bytes(&reader, &bytes, &length), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(std::string(static_cast<const char*>(bytes), length), std::string("a\0b", 3));
  EXPECT_EQ(ch3_offload_am_read_bytes(&reader, &bytes, &length), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(length, 0U);
  EXPECT_EQ(ch3_offload_am_read_string(&reader, &string), CH3_OFFLOAD_AM_OK);
  EXPECT_STREQ(string, "text");
  EXPECT_EQ(ch3_offload_am_read_string(&reader, &string), CH3_OFFLOAD_AM_OK);
  EXPECT_STREQ(string, "");
  EXPECT_EQ(ch3_offload_am_read_end(&reader), CH3_OFFLOAD_AM_DIFFERENT);
  EXPECT_EQ(ch3_offload_am_read_name(&reader, &its), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(std::memcmp(&its, &name, sizeof name), 0);
  EXPECT_EQ(ch3_offload_am_read_end(&reader), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(ch3_offload_am_read_u32(&reader, &small), CH3_OFFLOAD_AM_END);
}

// docs/active-messages.md has this form.
TEST_F(ArgumentsTest, TheFormIsLittleEndian) {
  ch3_offload_am_append_u32(&arguments_, 0x01020304);
  ch3_offload_am_append_u64(&arguments_, 5);
  ch3_offload_am_append_double(&arguments_, 1.0);
  ch3_offload_am_append_bytes(&arguments_, "xy", 2);
  ch3_offload_am_append_string(&arguments_, "z");
  const std::vector<unsigned char> expected = {1, 4, 3, 2, 1,                        //
                                               2, 5, 0, 0, 0, 0,   0,   0,    0,     //
                                               3, 0, 0, 0, 0, 0,   0,   0xf0, 0x3f,  //
                                               4, 2, 0, 0, 0, 'x', 'y',              //
                                               5, 2, 0, 0, 0, 'z', 0};
  EXPECT_EQ(std::vector<unsigned char>(arguments_.bytes, arguments_.bytes + arguments_.length), expected);
}

TEST_F(ArgumentsTest, AnAppendWithoutRoomFailsAndSoDoAllLaterOnes) {
  const std::vector<unsigned char> bytes(CH3_OFFLOAD_AM_MOST_BYTES);
  ASSERT_EQ(ch3_offload_am_append_bytes(&arguments_, bytes.data(), CH3_OFFLOAD_AM_MOST_BYTES - 5 - 5),
            CH3_OFFLOAD_AM_OK);
  ASSERT_EQ(ch3_offload_am_append_u32(&arguments_, 1), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(arguments_.length, std::uint32_t{CH3_OFFLOAD_AM_MOST_BYTES});
  EXPECT_EQ(ch3_offload_am_append_bytes(&arguments_, nullptr, 0), CH3_OFFLOAD_AM_END);
  ch3_offload_am_begin(&arguments_);
  EXPECT_EQ(ch3_offload_am_append_bytes(&arguments_, bytes.data(), bytes.size()), CH3_OFFLOAD_AM_END);
  EXPECT_EQ(ch3_offload_am_append_u32(&arguments_, 1), CH3_OFFLOAD_AM_END);
  EXPECT_EQ(arguments_.length, 0U);
  ch3_offload_am_begin(&arguments_);
  EXPECT_EQ(ch3_offload_am_append_bytes(&arguments_, bytes.data(), std::numeric_limits<std::size_t>::max()),
            CH3_OFFLOAD_AM_END);
  ch3_offload_am_begin(&arguments_);
  EXPECT_EQ(
      ch3_offload_am_append_string(&arguments_, std::string(CH3_OFFLOAD_AM_MOST_BYTES - 5, 'x').c_str()),
      CH3_OFFLOAD_AM_END);
  ch3_offload_am_begin(&arguments_);
  EXPECT_EQ(
      ch3_offload_am_append_string(&arguments_, std::string(CH3_OFFLOAD_AM_MOST_BYTES - 6, 'x').c_str()),
      CH3_OFFLOAD_AM_OK);
}

TEST_F(ArgumentsTest, NullIsInvalid) {
  EXPECT_EQ(ch3_offload_am_append_u32(nullptr, 1), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_u64(nullptr, 1), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_double(nullptr, 1), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_bytes(nullptr, "", 0), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_bytes(&arguments_, nullptr, 1), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_string(nullptr, ""), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_string(&arguments_, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_append_name(&arguments_, nullptr), CH3_OFFLOAD_AM_INVALID);
  ch3_offload_am_begin(nullptr);

  ch3_offload_am_reader_t reader = reader_of(arguments_);
  std::uint32_t small;
  std::uint64_t large;
  double real;
  const void* bytes;
  const char* string;
  std::size_t length;
  ch3_offload_am_name_t name;
  EXPECT_EQ(ch3_offload_am_read_u32(nullptr, &small), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_u32(&reader, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_u64(nullptr, &large), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_double(nullptr, &real), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_double(&reader, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_bytes(&reader, nullptr, &length), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_bytes(&reader, &bytes, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_string(&reader, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_string(nullptr, &string), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_name(&reader, nullptr), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_name(nullptr, &name), CH3_OFFLOAD_AM_INVALID);
  EXPECT_EQ(ch3_offload_am_read_end(nullptr), CH3_OFFLOAD_AM_INVALID);
}

TEST_F(ArgumentsTest, AnotherTypeIsRefusedAndStaysTheNextOne) {
  ch3_offload_am_append_u32(&arguments_, 42);
  ch3_offload_am_reader_t reader = reader_of(arguments_);
  std::uint32_t small = 0;
  std::uint64_t large;
  double real;
  const void* bytes;
  const char* string;
  std::size_t length;
  ch3_offload_am_name_t name;
  EXPECT_EQ(ch3_offload_am_read_u64(&reader, &large), CH3_OFFLOAD_AM_DIFFERENT);
  EXPECT_EQ(ch3_offload_am_read_double(&reader, &real), CH3_OFFLOAD_AM_DIFFERENT);
  EXPECT_EQ(ch3_offload_am_read_bytes(&reader, &bytes, &length), CH3_OFFLOAD_AM_DIFFERENT);
  EXPECT_EQ(ch3_offload_am_read_string(&reader, &string), CH3_OFFLOAD_AM_DIFFERENT);
  EXPECT_EQ(ch3_offload_am_read_name(&reader, &name), CH3_OFFLOAD_AM_DIFFERENT);
  EXPECT_EQ(ch3_offload_am_read_u32(&reader, &small), CH3_OFFLOAD_AM_OK);
  EXPECT_EQ(small, 42U);
}

TEST_F(ArgumentsTest, MalformedBytesAreRefused) {
  const void* bytes;
  const char* string;
  std::size_t length;
  std::uint32_t small;
  const std::vector<std::vector<unsigned char>> strings = {
      {5, 2, 0, 0, 0, 'z'},                 // shorter than it says
      {5, 1, 0, 0, 0, 'z'},                 // no null byte
      {5, 0, 0, 0, 0},                      // not even that
      {5, 3, 0, 0, 0, 'z', 0, 0},           // two
      {5, 0xff, 0xff, 0xff, 0xff, 'z', 0},  // a length that wraps around
      {5, 2, 0, 0},                         // half a length
      {5},                                  // only the type
      {0, 2, 0, 0, 0, 'z', 0},              // no such type
  };
  for (const auto& one : strings) {
    ch3_offload_am_reader_t reader = reader_of(one);
    EXPECT_EQ(ch3_offload_am_read_string(&reader, &string), CH3_OFFLOAD_AM_DIFFERENT);
    EXPECT_EQ(reader.at, 0U);
  }
  const std::vector<unsigned char> too_long = {4, 0xfb, 0xff, 0xff, 0xff, 0};
  ch3_offload_am_reader_t reader = reader_of(too_long);
  EXPECT_EQ(ch3_offload_am_read_bytes(&reader, &bytes, &length), CH3_OFFLOAD_AM_DIFFERENT);
  const std::vector<unsigned char> half = {1, 0, 0, 0};
  reader = reader_of(half);
  EXPECT_EQ(ch3_offload_am_read_u32(&reader, &small), CH3_OFFLOAD_AM_DIFFERENT);
}

// What is read lies inside the message, whatever the bytes are.
TEST_F(ArgumentsTest, RandomBytesAreReadWithinTheMessage) {
  std::mt19937 random(1);
  for (int round = 0; round < 200'000; ++round) {
    std::vector<unsigned char> message(random() % 40);
    for (unsigned char& byte : message)
      byte = static_cast<unsigned char>(random() % 4 == 0 ? random() : random() % 7);
    ch3_offload_am_reader_t reader = reader_of(message);
    const unsigned char* const end = message.data() + message.size();
    int code = CH3_OFFLOAD_AM_OK;
    for (int step = 0; step < 20 && code == CH3_OFFLOAD_AM_OK; ++step) {
      std::uint64_t large;
      const void* bytes = nullptr;
      const char* string = nullptr;
      std::size_t length = 0;
      code = ch3_offload_am_read_u64(&reader, &large);
      if (code != CH3_OFFLOAD_AM_OK) code = ch3_offload_am_read_bytes(&reader, &bytes, &length);
      if (code != CH3_OFFLOAD_AM_OK) code = ch3_offload_am_read_string(&reader, &string);
      if (bytes != nullptr) {
        ASSERT_GE(bytes, message.data());
        ASSERT_LE(static_cast<const unsigned char*>(bytes) + length, end);
      }
      if (string != nullptr) {
        ASSERT_LT(reinterpret_cast<const unsigned char*>(string) + std::strlen(string), end);
      }
      ASSERT_LE(reader.at, reader.length);
    }
  }
}

}  // namespace
