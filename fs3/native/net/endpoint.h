// Where a service listens.
#pragma once

#include <cstdint>
#include <string>

#include "fs3/native/base/status.h"

namespace fs3 {

struct Endpoint {
  std::string host;  // numeric once resolved: "127.0.0.1", "::1"
  uint16_t port = 0;

  std::string Text() const;  // "127.0.0.1:9000", "[::1]:9000"
  bool operator==(const Endpoint&) const = default;
};

// Turns a host name into a numeric address. May block on DNS: not for a loop's thread.
// kNotFound when there is no such host.
Result<Endpoint> ResolveEndpoint(const Endpoint& endpoint);

}  // namespace fs3
