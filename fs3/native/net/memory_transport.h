// A transport inside one process and one loop: the fake beside tcp. It has the same contract (one
// test suite runs on both), no system calls, and ends of a pipe that a test can hold in its hands.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "fs3/native/net/transport.h"

namespace fs3 {

class MemoryTransport : public Transport {
 public:
  // Bytes in flight in each direction before a sender has to wait.
  static constexpr size_t kPipeBytes = size_t{256} << 10;

  // Two connected ends.
  static std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> MakePair(Loop& loop);

  // Hosts are ignored; a port belongs to this transport object.
  Result<std::unique_ptr<Acceptor>> Listen(Loop& loop, const Endpoint& at,
                                           AcceptFunction accept) override;
  void Connect(Loop& loop, const Endpoint& to, std::chrono::nanoseconds timeout,
               ConnectFunction done) override;

 private:
  class PortHolder;
  using Ports = std::map<uint16_t, std::shared_ptr<AcceptFunction>>;

  std::shared_ptr<Ports> ports_ = std::make_shared<Ports>();
};

}  // namespace fs3
