// What a trace wrote to its file.

#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/trace.h"

namespace ch3_offload {

struct TraceContents {
  TraceFileHeader header{};
  std::vector<TraceRecord> records;
};

inline TraceContents read_back(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  TraceContents contents;
  EXPECT_GE(bytes.size(), sizeof contents.header);
  if (bytes.size() < sizeof contents.header) return contents;
  std::memcpy(&contents.header, bytes.data(), sizeof contents.header);
  for (std::size_t at = sizeof contents.header; at + sizeof(TraceRecord) <= bytes.size();
       at += sizeof(TraceRecord))
    std::memcpy(&contents.records.emplace_back(), bytes.data() + at, sizeof(TraceRecord));
  EXPECT_EQ(contents.header.count, contents.records.size());
  return contents;
}

}  // namespace ch3_offload
