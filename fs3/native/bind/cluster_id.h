#pragma once

#include <nanobind/nanobind.h>

#include <cstring>

#include "fs3/native/frame/hello.h"

namespace fs3::bind {

inline ClusterId ToClusterId(const nanobind::bytes& bytes) {
  ClusterId id;
  if (bytes.size() != id.size()) throw nanobind::value_error("a cluster id has 16 bytes");
  std::memcpy(id.data(), bytes.c_str(), id.size());
  return id;
}

}  // namespace fs3::bind
