// Shard: the targets that one thread serves, behind one port.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "fs3/native/net/connection.h"
#include "fs3/native/net/listener.h"
#include "fs3/native/server/byte_budget.h"
#include "fs3/native/server/counters.h"
#include "fs3/native/server/op_replies.h"
#include "fs3/native/server/peers.h"
#include "fs3/native/server/target.h"

namespace fs3 {

struct ShardOptions {
  Endpoint at;
  Identity self;
  size_t inflight_bytes_max = size_t{256} << 20;             // of clients
  size_t connection_inflight_bytes_max = size_t{128} << 20;  // of one of them
};

// Everything on the loop's thread.
class Shard final : public ConnectionHandler, public std::enable_shared_from_this<Shard> {
 public:
  static Result<std::shared_ptr<Shard>> Start(Loop& loop, const ShardOptions& options,
                                              ServerEventQueue& events,
                                              std::shared_ptr<ServerCounters> counters);

  uint16_t port() const { return listener_->port(); }
  ShardContext context() { return {loop_, peers_, events_, *counters_}; }

  void Add(std::shared_ptr<Target> target);
  // Null when there is no such target.
  std::shared_ptr<Target> Find(TargetId target) const;
  // Out of service at once; the caller closes it.
  std::shared_ptr<Target> Take(TargetId target);
  void SetChain(TargetId target, const ChainConfig& config);
  std::vector<std::shared_ptr<Target>> targets() const;

  // Takes no more requests and breaks the connections. Targets are taken and closed before.
  void Close();

 private:
  Shard(Loop& loop, const ShardOptions& options, ServerEventQueue& events,
        std::shared_ptr<ServerCounters> counters);

  // ConnectionHandler
  BulkTarget OnBulk(Connection& connection, const FrameHeader& header,
                    std::span<const uint8_t> body) override;
  void OnFrame(Connection& connection, Frame& frame) override;
  void OnClosed(Connection&, CloseReason, const Status&) override {}

  // One per method; a status that is not ok is the answer to the whole frame.
  Status OnRead(Connection& connection, Frame& frame);
  Status OnWrite(Connection& connection, Frame& frame);
  Status OnTruncate(Connection& connection, Frame& frame);
  Status OnRemove(Connection& connection, Frame& frame);
  Status OnQueryLast(Connection& connection, Frame& frame);
  Status OnFlush(Connection& connection, Frame& frame);
  Status OnStat(Connection& connection, Frame& frame);
  Status OnSpace(Connection& connection, Frame& frame);
  Status OnForward(Connection& connection, Frame& frame);
  Status OnPersisted(Connection& connection, Frame& frame);
  Status OnCommitted(Connection& connection, Frame& frame);
  Status OnSyncDone(Connection& connection, Frame& frame);
  Status Dispatch(Connection& connection, Frame& frame);

  // Decodes the ops and hands each to the target of its chain, with a function that takes the
  // answer; kStaleRouting where there is none.
  template <typename Op, typename ReplyType, typename Handle>
  Status ForEachOp(Connection& connection, Frame& frame, const std::vector<Op>& ops, Handle handle);

  std::shared_ptr<Target> FindChain(ChainId chain) const;
  // The target that a chain message is for; kStaleRouting when it is not here.
  Result<std::shared_ptr<Target>> FindReceiver(const ChainHeader& header) const;
  std::shared_ptr<ByteBudget> BudgetOf(Connection& connection) const;
  std::shared_ptr<FrameData> Hold(Connection& connection, Frame& frame,
                                  const std::shared_ptr<ByteBudget>& budget);
  void Tick();

  Loop& loop_;
  const ShardOptions options_;
  ServerEventQueue& events_;
  const std::shared_ptr<ServerCounters> counters_;
  Peers peers_;
  std::unique_ptr<Listener> listener_;
  std::map<TargetId, std::shared_ptr<Target>> targets_;
  std::unordered_map<ChainId, std::shared_ptr<Target>> chains_;
  // Forwards have a bound of their own: a chain must not wait for its own clients.
  const std::shared_ptr<ByteBudget> client_budget_;
  const std::shared_ptr<ByteBudget> chain_budget_;
  uint64_t ticks_ = 0;
  bool closed_ = false;
};

}  // namespace fs3
