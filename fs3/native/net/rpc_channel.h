// RpcChannel: the client's end of a service, for callers on threads of their own (Python). All
// channels of a process share one loop thread, which lives as long as one of them does.
//
// Any thread may call any method. Must be made after fork(): in a child of its maker every call
// fails with kUnavailable.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fs3/native/net/channel.h"

namespace fs3 {

struct RpcOutcome {
  uint32_t status = 0;
  bool is_text = false;  // a sentence about a failure, ours or the server's, not the method's bytes
  std::string body;
};

struct RpcCall {
  uint16_t method;
  std::string_view body;
};

// Calls that were sent together. May be dropped before they are over.
class RpcBatch {
 public:
  explicit RpcBatch(const std::vector<RpcCall>& calls);

  // False when not all have come back within `timeout`.
  bool Wait(std::chrono::nanoseconds timeout);

  // One per call, in order. After Wait has returned true.
  std::vector<RpcOutcome>& outcomes() { return outcomes_; }

 private:
  friend class RpcChannel;
  void Finish(size_t index, RpcOutcome outcome);

  std::string bodies_;
  std::vector<RpcCall> calls_;  // their bodies are in bodies_
  std::vector<RpcOutcome> outcomes_;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t unfinished_;
};

struct RpcCompletion {
  uint64_t id;
  RpcOutcome outcome;
};

class RpcChannel {
 public:
  // Connects. kUnavailable, kTimedOut, kVersionMismatch, or kNotFound for an unknown host.
  static Result<std::unique_ptr<RpcChannel>> Connect(const Endpoint& to, const Identity& self,
                                                     std::chrono::nanoseconds connect_timeout);
  ~RpcChannel();  // as Close

  // Sends all calls with as few system calls as possible.
  std::shared_ptr<RpcBatch> Start(const std::vector<RpcCall>& calls,
                                  std::chrono::nanoseconds timeout);

  // Sends one call whose outcome comes through Completed under the id returned.
  uint64_t Submit(const RpcCall& call, std::chrono::nanoseconds timeout);

  // Takes what has come back for Submit.
  std::vector<RpcCompletion> Completed();

  // An eventfd that is readable while completions wait. Owned by the channel; not to be read.
  int completion_fd() const;

  // The server, as it introduced itself at the last handshake.
  Identity peer();

  // Fails what is in flight with kUnavailable. Idempotent.
  void Close();

 private:
  class Completions;

  RpcChannel(std::shared_ptr<LoopThread> thread, std::shared_ptr<Channel> channel);
  bool Post(Task task);

  std::shared_ptr<LoopThread> thread_;
  std::shared_ptr<Channel> channel_;  // of the loop's thread
  std::shared_ptr<Completions> completions_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<bool> closed_{false};
  const int process_;
};

}  // namespace fs3
