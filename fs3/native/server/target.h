// Target: one target of a shard. The shell of its replication machine: it feeds the machine with
// what clients, peers and the store say, and carries out what it orders (design section 7).
//
// Thread and lifetime rules
//   * Everything on the shard's thread. Held by shared_ptr.
//   * Every `done` is called exactly once, also after Close.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/frame/chunk_ops.h"
#include "fs3/native/frame/replication.h"
#include "fs3/native/net/buffer.h"
#include "fs3/native/replica/replica.h"
#include "fs3/native/server/byte_budget.h"
#include "fs3/native/server/counters.h"
#include "fs3/native/server/peers.h"
#include "fs3/native/server/server_event.h"
#include "fs3/native/server/target_store.h"

namespace fs3 {

struct ChainMember {
  TargetId target = 0;
  uint64_t generation = 0;
  bool syncing = false;
  Endpoint endpoint;
};

// SERVING members from head to tail, then at most one SYNCING one.
struct ChainConfig {
  ChainId chain = 0;
  ChainVersion version = 0;
  std::vector<ChainMember> members;
};

// The bulk of a frame, shared by its ops; holds its share of the memory bounds.
struct FrameData {
  Buffer buffer;
  BudgetHold of_shard;
  BudgetHold of_connection;
};

// What the targets of a shard share.
struct ShardContext {
  Loop& loop;
  Peers& peers;
  ServerEventQueue& events;
  ServerCounters& counters;
};

class Target : public std::enable_shared_from_this<Target> {
 public:
  template <typename T>
  using Done = Function<void(const T&)>;

  static std::shared_ptr<Target> Create(const ShardContext& shard, const TargetIdentity& identity,
                                        std::unique_ptr<TargetStore> store,
                                        std::vector<replica::Uncommitted> recovered);

  void SetChain(const ChainConfig& config);
  // Answers whoever waits, then closes the store. `closed` gets the store back.
  void Close(Function<void(std::unique_ptr<TargetStore>)> closed);

  // From clients. `into` has room for op.length bytes and lives until `done`.
  void Read(const ReadOp& op, uint8_t* into, Done<ReadReply> done);
  void Write(const WriteOp& op, std::shared_ptr<FrameData> frame, std::span<const uint8_t> data,
             Done<UpdateReply> done);
  void Truncate(const TruncateOp& op, Done<UpdateReply> done);
  void Remove(const RemoveOp& op, Done<RemoveReply> done);
  void QueryLast(const QueryLastOp& op, Done<QueryLastReply> done);
  void Flush(ChainVersion chain_version, Done<FlushReply> done);
  void Stat(const ChunkId& chunk, Done<StatReply> done);

  // From peers, for a message whose header names this target.
  void Forward(ChainVersion chain_version, const ForwardItem& item,
               std::shared_ptr<FrameData> frame, std::span<const uint8_t> data,
               Done<AcknowledgeReply> done);
  void Persisted(ChainVersion chain_version, std::span<const ChunkVersion> versions);
  void Committed(ChainVersion chain_version, const ChunkId& chunk, Done<CommittedReply> done);
  void SyncDone(ChainVersion chain_version, Function<void(Code)> done);

  // Regular work: flushing to media, space, stalled forwards.
  void FlushToMedia();
  void CheckSpace(bool forget_downstream);
  void CheckProgress();

  void ExpireClient(Incarnation client);

  const TargetIdentity& identity() const { return identity_; }
  ChainId chain() const { return config_.chain; }
  Space space() const { return store_->chunks().space(); }
  StoreCounters store_counters() const { return store_->chunks().counters(); }

 private:
  // A target tells its successors to take no more growth this long before its reserve.
  static constexpr uint64_t kSpaceMargin = 256ULL << 20;

  struct WaitingRead {
    ReadOp op;
    uint8_t* into = nullptr;
    Done<ReadReply> done;
  };
  struct OutgoingForward {
    ForwardItem item;
    ChainVersion chain_version = 0;
    std::shared_ptr<const void> keep;  // owns `data`
    std::span<const uint8_t> data;
  };
  struct OutgoingPersisted {
    ChunkVersion version;
    ChainVersion chain_version = 0;
  };
  class RemoveRange;

  Target(const ShardContext& shard, const TargetIdentity& identity,
         std::unique_ptr<TargetStore> store, std::vector<replica::Uncommitted> recovered);

  // Tells the machine of an event and carries out what follows, in order.
  template <typename Event>
  void Tell(Event event) {
    event(&produced_);
    to_execute_.insert(to_execute_.end(), std::make_move_iterator(produced_.begin()),
                       std::make_move_iterator(produced_.end()));
    produced_.clear();
    Drain();
  }
  void Drain();
  void Execute(const replica::LoadChunk& effect);
  void Execute(const replica::ListChunks& effect);
  void Execute(const replica::Persist& effect);
  void Execute(const replica::Commit& effect);
  void Execute(const replica::Discard& effect);
  void Execute(const replica::Forward& effect);
  void Execute(const replica::ForwardChunk& effect);
  void Execute(const replica::SendPersisted& effect);
  void Execute(const replica::Acknowledge& effect);
  void Execute(const replica::Reply& effect);
  void Execute(const replica::AskTail& effect);
  void Execute(const replica::ServeRead& effect);
  void Execute(const replica::RefuseRead& effect);
  void Execute(const replica::RetryLater& effect);
  void Execute(const replica::SendSyncDone& effect);
  void Execute(const replica::DropChunk& effect);
  void Execute(const replica::SyncFinished& effect);
  void Execute(const replica::TargetFailed& effect);

  void ClientUpdate(ChainVersion chain_version, replica::Update update, Done<UpdateReply> done);
  void ReadStore(const ReadOp& op, std::optional<Version> version, uint8_t* into,
                 Done<ReadReply> done);
  void ReadMissing(const ReadOp& op, Done<ReadReply> done);
  void FindLast(const ChunkId& from, QueryLastReply best, Done<QueryLastReply> done);
  void RefuseForward(const replica::ForwardChunk& effect, Code code);
  void SendChunk(const replica::ForwardChunk& effect, const ChunkInfo& info);
  void QueueForward(OutgoingForward outgoing);
  void ScheduleSend();
  void SendQueued();
  void SendForwards(std::vector<OutgoingForward> batch);
  void OnForwardReply(const std::vector<OutgoingForward>& batch, const Reply& reply);
  void SendPersistedBatch(std::vector<OutgoingPersisted> batch);
  void TellProgress();
  std::optional<PeerAddress> AddressOf(TargetId target) const;
  ChainHeader HeaderFor(TargetId target, ChainVersion chain_version) const;
  const ChainMember* FindMember(TargetId target) const;
  ServerEvent NewEvent(ServerEvent::Kind kind) const;
  replica::Token NewToken() { return next_token_++; }

  ShardContext shard_;
  const TargetIdentity identity_;
  std::unique_ptr<TargetStore> store_;
  replica::Replica machine_;
  ChainConfig config_;
  bool closing_ = false;

  replica::Effects produced_;
  std::deque<replica::Effect> to_execute_;
  bool executing_ = false;

  replica::Token next_token_ = 1;
  std::unordered_map<replica::Token, Done<UpdateReply>> clients_;
  std::unordered_map<replica::Token, Done<AcknowledgeReply>> predecessors_;
  std::unordered_map<replica::Token, WaitingRead> reads_;

  std::vector<OutgoingForward> forwards_;
  std::vector<OutgoingPersisted> persisted_;
  bool send_scheduled_ = false;
  size_t forwards_under_way_ = 0;
  BootClock::time_point last_progress_{};
  BootClock::time_point last_stall_told_{};
  BootClock::time_point last_sync_told_{};
  bool retry_armed_ = false;
  std::chrono::nanoseconds retry_delay_{};
  bool flushing_ = false;
};

}  // namespace fs3
