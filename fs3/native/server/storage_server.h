// StorageServer: the native part of a storage node. Shards, each one thread, loop and port, and the
// targets they own; controlled from outside by any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fs3/native/net/endpoint.h"
#include "fs3/native/server/shard.h"

namespace fs3 {

struct TargetSpace {
  TargetId target = 0;
  Space space;
  uint64_t chunks = 0;
};

// All methods may be called from any thread but those of the shards, and wait for the shard.
class StorageServer {
 public:
  struct Options {
    Identity self;
    std::string host = "127.0.0.1";
    std::vector<uint16_t> ports = {0};  // one shard for each; 0: any free one
    size_t inflight_bytes_max = size_t{256} << 20;
  };

  // kUnavailable when a port cannot be bound.
  static Result<std::unique_ptr<StorageServer>> Start(const Options& options);
  ~StorageServer();
  StorageServer(const StorageServer&) = delete;
  StorageServer& operator=(const StorageServer&) = delete;

  // Errors as TargetStore::Open; kAlreadyExists when it serves here, kInvalidArgument for a shard
  // that does not exist.
  Status AddTarget(const TargetStoreOptions& options, size_t shard);
  Status RemoveTarget(TargetId target);
  // kNotFound: no such target; kConflict: it is listed with another generation.
  Status SetChain(TargetId target, ChainConfig config);
  void ExpireClients(const std::vector<Incarnation>& clients);

  std::vector<ServerEvent> PollEvents(std::chrono::nanoseconds timeout) {
    return events_.Take(timeout);
  }
  int event_fd() const { return events_.fd(); }
  std::vector<TargetSpace> GetSpace();
  std::vector<std::pair<std::string, uint64_t>> Counters();
  std::vector<Endpoint> endpoints() const;
  // kNotFound: no such target.
  Result<Endpoint> EndpointOf(TargetId target) const;

  // Closes all targets and stops all shards; idempotent.
  void Stop();

 private:
  struct ShardThread {
    std::unique_ptr<LoopThread> thread;
    std::shared_ptr<Shard> shard;  // let go on its thread
    std::shared_ptr<ServerCounters> counters;
    Endpoint endpoint;
  };

  explicit StorageServer(Options options) : options_(std::move(options)) {}

  Status StartShard(uint16_t port);
  // Runs on the shard's thread and waits; false when it has stopped.
  template <typename Work>
  bool RunOn(ShardThread& at, Work work);
  std::unique_ptr<TargetStore> CloseTarget(ShardThread& at, TargetId target);
  std::vector<replica::Uncommitted> FindUncommitted(ShardThread& at, TargetStore& store);
  // Null when no shard has it.
  ShardThread* Owner(TargetId target);

  const Options options_;
  ServerEventQueue events_;
  std::vector<ShardThread> shards_;
  mutable std::mutex control_;  // one control operation at a time; guards owners_ and stopped_
  std::map<TargetId, size_t> owners_;
  bool stopped_ = false;
};

}  // namespace fs3
