// The parts of a ChunkStore, shared by the files that implement it: chunk_store.cpp (faces),
// residency.cpp, open.cpp, read.cpp, prepare.cpp, space.cpp, flush.cpp and fold.cpp.
#pragma once

#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "fs3/native/chunk/async.h"
#include "fs3/native/chunk/block_allocator.h"
#include "fs3/native/chunk/chunk_map.h"
#include "fs3/native/chunk/chunk_store.h"
#include "fs3/native/chunk/disk.h"
#include "fs3/native/chunk/meta_kv.h"
#include "fs3/native/chunk/placement.h"
#include "fs3/native/chunk/record.h"
#include "fs3/native/chunk/resident_chunk.h"
#include "fs3/native/chunk/small_write_log.h"

namespace fs3 {

// A chunk with more pieces is folded in the background, by its next update, or, if that does not
// help, rewritten to fresh blocks by its next update.
constexpr size_t kFoldPieces = 16;
constexpr size_t kFoldUrgentPieces = 32;
constexpr size_t kMergePieces = 64;

class ChunkStore::Impl {
 public:
  Impl(Disk& disk, MetaKv& kv, const ChunkStoreOptions& options);
  ~Impl();

  // open.cpp: fills an empty store from the metadata
  Async<Status> Restore();
  // prepare.cpp
  Detached Prepare(Update update, Callback<Prepared> done);
  // read.cpp
  Detached Read(ReadRequest request, Callback<ReadResult> done);
  // chunk_store.cpp
  Status Commit(const ChunkId& id, Version version);
  Status Abandon(const ChunkId& id, Version version);
  Detached Forget(ChunkId id, Version version, Done done);
  Detached Stat(ChunkId id, Callback<ChunkInfo> done);
  Detached List(ChunkId from, size_t limit, Callback<ChunkList> done);
  Detached Close(Done done);
  std::vector<ChunkId> PendingChunks() const;
  Space space() const;
  StoreCounters counters() const;
  // flush.cpp
  void Flush(Done done);

 private:
  // Keeps a chunk in memory, and the store open, for the length of an operation.
  class Use {
   public:
    Use(Impl& store, const ChunkId& id);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ResidentChunk* operator->() const { return &chunk_; }
    ResidentChunk& operator*() const { return chunk_; }

   private:
    Impl& store_;
    ResidentChunk& chunk_;
  };

  // Counts an operation, so that Close can wait for it.
  class InFlight {
   public:
    explicit InFlight(Impl& store) : store_(store) { ++store_.in_flight_; }
    ~InFlight();
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;

   private:
    Impl& store_;
  };

  // Pieces an update has been given and not recorded yet.
  struct Placement {
    std::vector<Piece> pieces;
    Status status;
  };

  // What an update makes of the newest version: [begin, end) is rewritten from kept bytes, which
  // lie before `limit` outside the data, and from the data; the rest is zeros.
  struct Edit {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t data_begin = 0;
    std::span<const uint8_t> data;
    uint32_t limit = 0;
    bool large = false;
    bool merges = false;  // rewrites the whole chunk to be rid of its pieces
    uint32_t data_end() const { return data_begin + static_cast<uint32_t>(data.size()); }
  };

  // Granules of an edit and where their new bytes are in memory.
  struct Source {
    uint32_t begin = 0;
    uint32_t end = 0;
    const uint8_t* bytes = nullptr;
    std::vector<uint8_t> scratch;  // behind `bytes`, unless they are the caller's
  };

  // open.cpp
  struct Group;
  Async<Status> RestoreState(StoreState& state);
  Async<Status> RestorePending(std::set<RecordKey>& pending);
  Status RestoreFiles();
  Async<Status> RestoreVersions(const StoreState& state, const std::set<RecordKey>& pending);
  Async<Status> RestoreChunk(Group group, const StoreState& state,
                             const std::set<RecordKey>& pending);
  Async<bool> IsWhole(const Record& record);
  void HoldRestored(const ChunkId& id, Record record, HeldState state);
  Async<Status> PunchFree();

  // residency.cpp
  ResidentChunk& Resident(const ChunkId& id);
  void Settle(ResidentChunk& chunk);
  Async<Status> Load(ResidentChunk& chunk);          // holding the turn
  Async<Status> EnsureLoaded(ResidentChunk& chunk);  // without the turn
  void Retire(ResidentChunk& chunk, const Record& record, bool delete_now);
  void Fail(const Status& status);
  Status CheckService() const;

  // chunk_store.cpp
  static ChunkInfo Describe(const ResidentChunk& chunk);
  std::optional<ChunkInfo> DescribeListed(const RecordKey& key, std::string_view value);
  void DropPending(ResidentChunk& chunk, size_t first);

  // prepare.cpp
  Async<Result<Prepared>> Apply(const Update& update);
  static std::optional<Prepared> FindDuplicate(const ResidentChunk& chunk, const Update& update);
  static Status Admit(const Record* newest, const Update& update);
  static Result<Record> NextRecord(const Record& base, const Update& update);
  static Edit PlanEdit(const Record& base, const Record& next, const Update& update);
  Async<Status> WriteEdit(ResidentChunk& chunk, Record& base, Record& next, const Update& update);
  Async<Status> WriteRange(ResidentChunk& chunk, const Record& base, Record& next,
                           const Update& update, const Edit& edit, Placement& placement);
  Async<Status> Assemble(const Record& base, const Edit& edit, std::vector<Source>& out);
  static void HashSource(const Source& source, Record& next);
  static uint32_t DataCrc(const Edit& edit, const Record& next);
  Async<Status> WriteData(const std::vector<Piece>& pieces, const std::vector<Source>& sources);
  MetaKv::Batch Hold(ResidentChunk& chunk, std::shared_ptr<Record> next, HeldState state);

  // read.cpp
  Async<Status> ReadGranules(const Record& record, uint32_t begin, uint32_t end, uint8_t* to);
  Async<Result<ReadResult>> ReadRange(const Record& record, const ReadRequest& request);

  // space.cpp
  bool HasRoom(uint64_t bytes, bool use_reserve) const;
  Async<Result<uint32_t>> TakeBlock(uint8_t class_log2, bool use_reserve);
  Async<Status> BackBlocks(uint8_t class_log2, bool use_reserve);
  Async<Status> GiveBackBlocks(uint64_t bytes_min);
  Async<Status> PlaceFresh(ResidentChunk& chunk, std::vector<FreshBlock> fresh, bool use_reserve,
                           Placement& out);
  Async<Status> PlaceInLog(ResidentChunk& chunk, uint32_t begin, uint32_t end, bool use_reserve,
                           Placement& out);
  Async<Placement> Place(ResidentChunk& chunk, const PlaceRequest& request, bool use_reserve);
  void Acquire(ResidentChunk& chunk, std::span<const Piece> pieces);
  void Release(ResidentChunk& chunk, std::span<const Piece> pieces);

  // flush.cpp
  Async<Status> FlushNow();
  Detached RunFlushes();
  Async<Status> FlushOnce();
  void ReleaseRetired(uint64_t flush);
  Async<Status> RemoveDeadSegments();
  void Persist(MetaKv::Batch batch, MetaKv::Done done);

  // fold.cpp
  void ConsiderFolding(const ChunkId& chunk, const Record& record);
  void RequestFlush();
  Detached RunFolds();
  Async<Status> Fold(ResidentChunk& chunk);
  Async<Placement> MoveHome(ResidentChunk& chunk, Record& record);
  Async<Placement> PlaceHome(ResidentChunk& chunk, const Record& record);

  struct Retired {
    ChunkId chunk;
    uint64_t ordinal = 0;
    uint64_t flush = 0;       // released by the first flush that began after this many
    bool delete_key = false;  // its record was kept as what to fall back to
  };

  Disk& disk_;
  MetaKv& kv_;
  const ChunkStoreOptions options_;

  ResumeQueue resume_queue_;
  BlockAllocator blocks_;
  Turn growth_turn_{resume_queue_};  // one fallocate at a time
  SmallWriteLog log_;
  Turn log_turn_{resume_queue_};
  ChunkMap map_;
  std::unordered_map<ChunkId, std::unique_ptr<ResidentChunk>, ChunkIdHash> resident_;
  std::list<ResidentChunk*> idle_;  // restorable and unused, most recently used first
  size_t idle_bytes_ = 0;

  uint64_t last_ordinal_ = 0;
  uint64_t durable_ordinal_ = UINT64_MAX;  // unknown before the first flush
  MetaKv::Batch lazy_;                     // deletions that travel with the next batch
  std::set<FileId> dirty_files_;
  std::vector<Retired> retired_;

  uint64_t flushes_begun_ = 0;
  bool flushing_ = false;
  std::vector<Done> flush_waiters_;

  std::set<ChunkId> fold_due_;
  bool folding_ = false;

  Status failure_;
  bool closing_ = false;
  uint32_t in_flight_ = 0;
  Done idle_waiter_;
  StoreCounters counters_;
};

}  // namespace fs3
