// The replication machine of one target in one chain: CRAQ, write-all read-any (Terrace and
// Freedman, USENIX ATC 2009). No IO, clock or thread: events come in, effects go out, and the
// simulator drives this very code.
//
// Rules it keeps (design section 7):
//  * The head orders the updates of a chunk, one at a time, and stamps each with a Version.
//  * Data is forwarded while it is being persisted. PERSISTED goes downstream only when this
//    replica's own persist and its predecessor's PERSISTED are done; the tail commits only after
//    both; an acknowledgement goes upstream only after the replica's own persist. So a committed
//    version is persisted on every serving replica.
//  * After a chain change the order of the survivors is kept; each sends every uncommitted version
//    it has to its new successor, and a new tail commits all it holds. Nothing that was fully
//    received is dropped by a serving replica.
//  * The result of an update is stored with the chunk and travels with it, so a retry gets the
//    first answer from any replica.
//  * Every message names a chain version and is refused (kStaleRouting) unless it is the current.
//
// One uncommitted version per chunk keeps this small: a chunk under way is a slot with a queue. A
// copy of a clean chunk for a SYNCING successor takes the slot like an update, so copies and
// updates of a chunk never overtake each other. A SYNCING member is the last to persist, but what
// it holds is invisible: the last SERVING one is the tail that readers ask.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/replica/effects.h"
#include "fs3/native/replica/update.h"

namespace fs3::replica {

struct Limits {
  size_t updates_max = 4096;  // in slots and queues together; beyond, kBusy
  size_t copies_max = 8;      // chunks on their way to a SYNCING successor
};

// A member that takes part: SERVING ones first, head to tail, then at most one SYNCING one.
struct Member {
  TargetId target = 0;
  bool syncing = false;
};

struct Chain {
  ChainVersion version = 0;
  std::vector<Member> members;
};

class Replica {
 public:
  // `recovered`: what the store holds persisted but uncommitted, from an earlier process.
  Replica(TargetId self, const Limits& limits, std::vector<Uncommitted> recovered);

  // A newer chain version; an older or equal one changes nothing.
  void OnChain(const Chain& chain, Effects* effects);

  // From clients. `update` has no version yet.
  void OnClientUpdate(Token token, ChainVersion chain_version, Update update, Effects* effects);
  void OnRead(Token token, ChainVersion chain_version, const ChunkId& chunk, Effects* effects);

  // From the predecessor.
  void OnForward(Token token, ChainVersion chain_version, Update update, bool upstream_persisted,
                 Effects* effects);
  void OnUpstreamPersisted(ChainVersion chain_version, const ChunkId& chunk, Version version,
                           Effects* effects);
  void OnSyncDone(Token token, ChainVersion chain_version, Effects* effects);

  // From the successor: the answer to Forward or ForwardChunk, also when the shell makes it up
  // because the connection was lost.
  void OnAcknowledge(ChainVersion chain_version, const ChunkId& chunk, Version version, Code code,
                     bool full, Effects* effects);
  void OnSyncDoneAnswer(ChainVersion chain_version, Code code, Effects* effects);

  // From the tail. `committed` is {0, 0} when it has no such chunk.
  void OnTailAnswer(Token token, Code code, Version committed, Effects* effects);

  // From the store. `state` is none when there is no such chunk, not even a tombstone.
  void OnLoaded(const ChunkId& chunk, Code code, const std::optional<ChunkState>& state,
                Effects* effects);
  void OnListed(ChainVersion chain_version, Code code, const std::vector<ChunkId>& chunks,
                bool more, Effects* effects);
  // kCorrupt: the update's data is not what its sender had. Other errors are this store's own.
  // `length` is that of the chunk in this version.
  void OnPersisted(const ChunkId& chunk, Version version, Code code, uint32_t length,
                   Effects* effects);
  void OnDropped(ChainVersion chain_version, Code code, Effects* effects);

  // From the shell.
  void OnRetry(Effects* effects);
  // Whether this store is short of space. `forget_downstream`: now and then, so that the next
  // acknowledgement tells anew whether the members behind are.
  void OnSpace(bool full, bool forget_downstream);
  // The client has ended for good: nobody will retry its updates.
  void OnClientExpired(Incarnation client);

  // Whether a read of the chunk may be served from the committed version without asking anybody.
  bool IsClean(ChainVersion chain_version, const ChunkId& chunk) const;
  // Whether this replica's committed versions are those of the chain.
  bool IsTail(ChainVersion chain_version) const {
    return chain_version == chain_version_ && is_tail_;
  }

  ChainVersion chain_version() const { return chain_version_; }
  bool is_serving() const { return role_ == Role::kServing; }
  bool is_syncing() const { return role_ == Role::kSyncing; }
  bool is_head() const { return is_head_; }
  std::optional<TargetId> successor() const { return successor_; }
  TargetId tail() const { return tail_; }
  // Updates under way or queued.
  size_t updates() const { return updates_; }
  bool is_copying() const { return source_ && !source_->done; }
  // Chunks that the SYNCING successor has acknowledged in this chain version.
  uint64_t copied() const { return source_ ? source_->copied : 0; }

  // Aborts when what must always hold does not.
  void CheckInvariants() const;

 private:
  enum class Role : uint8_t { kNone, kServing, kSyncing };

  // The one version of a chunk that is under way, or (is_copy) its committed one on the way to a
  // SYNCING successor.
  struct InFlight {
    std::shared_ptr<const Update> update;
    bool is_copy = false;
    bool persisted = false;
    bool upstream_persisted = false;
    bool forwarded = false;       // to the present successor in this chain version
    bool persisted_sent = false;  // PERSISTED, or the flag in the forward
    bool acknowledged = false;    // by the successor
    bool base_gone = false;       // the store dropped what the chunk was before this version
    bool doomed = false;          // discard once persisted: the chunk will be replaced
    uint32_t length = 0;          // of the chunk, once persisted
    std::vector<Token> clients;   // who wait for the end
    std::vector<Token> forwards;
  };
  struct ClientWork {
    std::vector<Token> tokens;
    Update update;
  };
  struct ForwardWork {
    Token token = 0;
    Update update;
    bool upstream_persisted = false;
  };
  struct CopyWork {};
  using Work = std::variant<ClientWork, ForwardWork, CopyWork>;

  struct Slot {
    std::optional<InFlight> current;
    bool loading = false;  // for the first of the queue
    std::deque<Work> queue;
  };
  using Slots = std::map<ChunkId, Slot>;

  // The predecessor's side of a full copy.
  struct SyncSource {
    bool listing = false;
    bool all_listed = false;
    bool done_sent = false;
    bool done = false;
    std::optional<ChunkId> after;
    std::deque<ChunkId> listed;
    size_t under_way = 0;
    uint64_t copied = 0;
  };

  // The SYNCING replica's side.
  struct SyncSink {
    std::map<ChunkId, Version> received;
    std::optional<Token> done_token;  // while it looks for chunks that were not sent
    bool all_listed = false;
    size_t dropping = 0;
  };

  void AdoptPosition(const Chain& chain);
  void LeaveChain(Code code, Effects* effects);
  void BecomeSyncing(Effects* effects);
  void ContinueServing(Effects* effects);
  void AdoptRecovered(Effects* effects);
  void AnswerWaiting(Slot* slot, Code code, bool clients, Effects* effects);
  void AnswerWork(const Work& work, Code code, Effects* effects);
  void ReconsiderReads(Effects* effects);

  bool JoinSame(Slot* slot, Token token, const Update& update);
  void Enqueue(const ChunkId& chunk, Work work, Effects* effects);
  void StartNext(Slots::iterator at, Effects* effects);
  bool Start(Slot* slot, ClientWork work, const std::optional<ChunkState>& state, Effects* effects);
  bool Start(Slot* slot, ForwardWork work, const std::optional<ChunkState>& state,
             Effects* effects);
  bool StartCopy(Slot* slot, const ChunkId& chunk, const std::optional<ChunkState>& state,
                 Effects* effects);
  void StartPendingCut(Slot* slot, const Update& update, Effects* effects);
  bool AnswerAtOnce(const Update& update, const std::optional<ChunkState>& state,
                    Reply* reply) const;
  std::vector<Incarnation> ExpiredIn(const ChunkState& state) const;

  void Advance(Slots::iterator at, Effects* effects);
  void AdvanceAll(Effects* effects);
  void SendDownstream(InFlight* current, Effects* effects);
  void Finish(Slots::iterator at, Effects* effects);
  void Abort(Slots::iterator at, Code code, Effects* effects);
  void Fail(Code code, Effects* effects);

  void ContinueCopying(Effects* effects);
  void ContinueDropping(Effects* effects);
  void Decide(Token token, const ChunkId& chunk, Effects* effects);
  bool IsFull() const { return full_ || downstream_full_; }

  const TargetId self_;
  const Limits limits_;
  std::vector<Uncommitted> recovered_;

  ChainVersion chain_version_ = 0;
  Role role_ = Role::kNone;
  bool is_head_ = false;
  bool is_tail_ = false;  // the last serving one
  TargetId tail_ = 0;
  std::optional<TargetId> successor_;
  bool successor_syncing_ = false;
  ChainSequence next_sequence_ = 1;
  bool full_ = false;
  bool downstream_full_ = false;
  std::set<Incarnation> expired_;

  Slots slots_;
  size_t updates_ = 0;
  std::map<Token, ChunkId> asking_;  // reads that wait for the tail's answer
  std::optional<SyncSource> source_;
  std::optional<SyncSink> sink_;
};

}  // namespace fs3::replica
