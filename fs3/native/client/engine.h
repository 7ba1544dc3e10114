// Engine: the loop's side of the IO client. Takes pieces, groups them into frames by shard, bounds
// what is in flight, and retries until the deadline.
//
// Reads may be answered twice: a piece that waits for long is sent to another replica as well. Data
// arrives in the caller's memory, so a piece is decided only when no connection is receiving into
// it; what comes meanwhile from elsewhere is kept aside.
//
// Writes are sent from the caller's memory to the head of the chain under one channel and sequence
// until somebody answers: only then is the memory, and the channel, free.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs3/native/base/status.h"
#include "fs3/native/client/completion_queue.h"
#include "fs3/native/client/counters.h"
#include "fs3/native/client/io_types.h"
#include "fs3/native/client/lanes.h"
#include "fs3/native/client/ticket.h"
#include "fs3/native/frame/chunk_ops.h"
#include "fs3/native/net/channel.h"

namespace fs3 {

struct EngineOptions {
  Identity self;
  size_t inflight_bytes_max = size_t{64} << 20;
  std::chrono::nanoseconds hedge_after = std::chrono::milliseconds(100);
};

// A shard of a storage node, and what is on its way there.
struct ShardLink {
  Endpoint endpoint;
  std::shared_ptr<Channel> channel;
  size_t outstanding_bytes = 0;
  BootClock::time_point suspect_until{};  // it failed lately; others go first
  // Chosen in this turn, not sent yet.
  std::vector<std::pair<IoPiece*, TargetId>> reads;
  std::vector<IoPiece*> writes;
};

// One read frame under way.
struct ReadAttempt {
  ShardLink* link = nullptr;
  std::vector<std::pair<IoPiece*, TargetId>> pieces;
  size_t bytes = 0;
  BootClock::time_point sent{};
  BootClock::time_point receiving_since{};
  bool is_valid = false;  // replies are decoded and fit what was asked
  std::vector<ReadReply> replies;
  std::vector<uint8_t*> places;  // of the data of each piece
  std::vector<Buffer> aside;     // where the caller's memory was not free
};

// Everything on the loop's thread.
class Engine {
 public:
  Engine(Loop& loop, const EngineOptions& options, ClientCounters& counters,
         CompletionQueue& completions);

  void SetRouting(std::vector<ChainRoute> chains);
  // Before its pieces.
  void AddTicket(std::shared_ptr<Ticket> ticket);
  // Pieces [begin, end) of the ticket.
  void AddPieces(Ticket& ticket, size_t begin, size_t end);
  // Everything under way fails with kUnavailable; takes no more. `closed` when all tickets ended.
  void Close(Function<void()> closed);

 private:
  // engine.cpp
  void Enqueue(IoPiece* piece);
  void Pump();
  void Dispatch(IoPiece* piece);
  void ScheduleSend();
  void SendQueued();
  void Park(IoPiece* piece);
  void Unpark(IoPiece* piece);
  void Retry(IoPiece* piece, Code code);
  void Finish(IoPiece* piece, Code code, uint64_t length);
  void Complete(Ticket& ticket);
  void BeginAttempt(IoPiece* piece, ShardLink* link, size_t bytes);
  void EndAttempt(IoPiece* piece, ShardLink* link, size_t bytes);
  void LeaveTicket(Ticket& ticket);
  void ReleaseIfUnused(Ticket& ticket);
  ShardLink* LinkTo(const Endpoint& endpoint);
  Channel* ChannelOf(ShardLink* link);
  void CloseLink(ShardLink* link);
  const ChainRoute* RouteOf(ChainId chain) const;
  std::chrono::nanoseconds TimeoutOf(const IoPiece& piece) const;
  void OnTransportFailure(ShardLink* link, const Reply& reply);

  // engine_read.cpp
  void DispatchRead(IoPiece* piece, const ChainRoute& route);
  const RouteMember* PickReplica(const IoPiece& piece, const ChainRoute& route);
  void SendReads(ShardLink* link, std::span<const std::pair<IoPiece*, TargetId>> pieces);
  BulkTarget PlaceReads(ReadAttempt& attempt, const FrameHeader& header,
                        std::span<const uint8_t> body);
  bool DecodeReads(ReadAttempt& attempt, uint64_t bulk_length, std::span<const uint8_t> body);
  void OnReadReply(const std::shared_ptr<ReadAttempt>& attempt, const Reply& reply);
  void OnPieceRead(ReadAttempt& attempt, size_t index);
  void OnReadFailed(IoPiece* piece, TargetId target, Code code);
  void FinishRead(IoPiece* piece, const uint8_t* data, size_t size);
  void Watch();
  void Hedge(ReadAttempt& attempt);

  // engine_update.cpp
  void DispatchWrite(IoPiece* piece, const ChainRoute& route);
  void SendWrites(ShardLink* link, std::span<IoPiece* const> pieces);
  void OnWriteReply(ShardLink* link, const std::vector<IoPiece*>& pieces, const Reply& reply);
  void OnUpdateReply(IoPiece* piece, Code code, uint64_t length);
  template <typename Op, typename ReplyType, typename Handle>
  void CallOne(IoPiece* piece, const RouteMember& to, uint16_t method, const Op& op, Handle handle);
  void DispatchTruncate(IoPiece* piece, const ChainRoute& route);
  void DispatchRemove(IoPiece* piece, const ChainRoute& route);
  void DispatchQueryLast(IoPiece* piece, const ChainRoute& route);
  void DispatchFlush(IoPiece* piece, const ChainRoute& route);

  Loop& loop_;
  const EngineOptions options_;
  ClientCounters& counters_;
  CompletionQueue& completions_;
  bool closed_ = false;
  Function<void()> on_closed_;
  size_t tickets_ = 0;

  std::unordered_map<ChainId, ChainRoute> chains_;
  std::map<std::string, std::unique_ptr<ShardLink>> links_;
  std::deque<IoPiece*> queue_;
  size_t inflight_bytes_ = 0;
  bool send_scheduled_ = false;
  std::unordered_map<ChainId, std::set<IoPiece*>> parked_;
  Lanes lanes_;
  std::set<std::shared_ptr<ReadAttempt>> read_attempts_;
  bool watching_ = false;
  uint64_t rotation_ = 0;
};

}  // namespace fs3
