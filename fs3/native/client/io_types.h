// What callers of the IO client hand in and get back; the first two are numpy dtypes in Python.
#pragma once

#include <cstdint>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/net/endpoint.h"

namespace fs3 {

struct IoRequest {
  uint32_t handle = 0;
  uint32_t reserved = 0;
  uint64_t file_offset = 0;
  uint64_t length = 0;
  uint64_t buffer_offset = 0;
};
static_assert(sizeof(IoRequest) == 32);

struct IoResult {
  uint32_t code = 0;
  uint32_t reserved = 0;
  uint64_t length = 0;
};
static_assert(sizeof(IoResult) == 16);

struct RouteMember {
  TargetId target = 0;
  Endpoint endpoint;
};

// A chain as clients see it: its SERVING members from head to tail.
struct ChainRoute {
  ChainId chain = 0;
  ChainVersion version = 0;
  std::vector<RouteMember> serving;
};

}  // namespace fs3
