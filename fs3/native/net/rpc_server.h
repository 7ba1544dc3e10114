// RpcServer: a service whose operations are written in Python. Requests are received, checked and
// queued by a loop thread of their own, and taken in batches by whoever polls; replies go back in
// batches. HELLO and PING never reach Python.
//
// Any thread may call any method. Must be made after fork(); in a child of its maker every method
// does nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fs3/native/net/listener.h"

namespace fs3 {

struct RpcRequest {
  uint64_t connection_id = 0;
  uint64_t request_id = 0;  // unique within its connection
  uint16_t method = 0;
  std::string body;
  PeerKind peer_kind = PeerKind::kClient;
  Incarnation peer_incarnation = 0;
};

struct RpcReply {
  uint64_t connection_id = 0;
  uint64_t request_id = 0;
  uint32_t status = 0;
  std::string body;
};

class RpcServer {
 public:
  struct Options {
    // Requests received and not yet polled; further ones are answered kBusy.
    size_t queue_length_max = 8192;
    size_t queue_bytes_max = size_t{64} << 20;
  };

  // Serves from now on. kUnavailable when the port is in use, kNotFound for an unknown host.
  static Result<std::unique_ptr<RpcServer>> Start(const Endpoint& at, const Identity& self,
                                                  const Options& options);
  ~RpcServer();  // as Close

  uint16_t port() const { return port_; }

  // Waits for at least one request and takes up to `count_max`. Empty after `timeout` or Close.
  std::vector<RpcRequest> Poll(size_t count_max, std::chrono::nanoseconds timeout);

  // Answers that belong to no waiting request (its connection has closed, or it was answered
  // before) are dropped.
  void Reply(std::vector<RpcReply> replies);

  bool is_closed() const;

  // Closes every connection and wakes every Poll. Idempotent.
  void Close();

 private:
  class Service;

  RpcServer(std::unique_ptr<LoopThread> thread, std::shared_ptr<Service> service);

  std::unique_ptr<LoopThread> thread_;
  std::shared_ptr<Service> service_;
  std::unique_ptr<Listener> listener_;  // of the loop's thread
  uint16_t port_ = 0;
  const int process_;
};

}  // namespace fs3
