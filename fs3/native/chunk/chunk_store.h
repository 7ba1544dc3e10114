// ChunkStore: the chunks of one target, on a Disk and a MetaKv. Used by one thread; never blocks.
//
// What it promises
//  * A prepared update survives kill -9 when its callback runs, and power loss once a Flush begun
//    later has ended. After power loss every chunk is at its flushed state or at a later one,
//    whole.
//  * Every granule is checked against its CRC32C on every read: wrong bytes are never returned.
//  * A chunk's versions are kept in order: committed, then pending ones, each based on the one
//    before. Readers of a version never see a later one.
//
// The idea that makes it work: nothing that any recorded version refers to is ever overwritten.
// New bytes go to fresh blocks, to the unused tail of a block or to the small-write log; a
// superseded version keeps its record and its space until a flush has made its successor durable.
// So at any moment the last flushed state is complete on the media, and an update after it that
// arrives torn fails its CRCs at open and is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/loop/function.h"

namespace fs3 {

class Disk;
class MetaKv;

constexpr uint32_t kChunkSizeMin = 64U << 10;
constexpr uint32_t kChunkSizeMax = 64U << 20;
constexpr size_t kOnceRecordsMax = 64;

// The unit of checksums and of placement.
constexpr uint32_t GranuleSize(uint32_t chunk_size) {
  return chunk_size / 256 < 4096 ? 4096 : chunk_size / 256;
}

// The remembered result of one client operation, so that its retry has no second effect.
struct OnceRecord {
  Incarnation client = 0;
  uint32_t channel = 0;
  uint64_t sequence = 0;
  Version version;      // the version the operation made
  uint32_t length = 0;  // of the chunk afterwards, bytes
  bool operator==(const OnceRecord&) const = default;
};

enum class UpdateKind : uint8_t {
  kWrite = 1,     // data at offset; creates the chunk, or revives a tombstone
  kTruncate = 2,  // length becomes min(length, current)
  kExtend = 3,    // length becomes max(length, current); the new bytes read as zeros
  kRemove = 4,    // leaves a tombstone with the once records
  kReplace = 5,   // the whole state comes from a peer; every other version is dropped
};

struct Update {
  ChunkId chunk;
  UpdateKind kind = UpdateKind::kWrite;
  Version version;                // of the result; above every version held, except for kReplace
  std::optional<Version> base;    // the newest version held must be this one ({0, 0}: no chunk)
  uint32_t chunk_size = 0;        // power of two in [kChunkSizeMin, kChunkSizeMax]
  uint64_t truncate_version = 0;  // of the inode; an older one than the chunk's is refused
  uint32_t offset = 0;            // kWrite, bytes
  uint32_t length = 0;            // kTruncate, kExtend: bytes
  bool tombstone = false;         // kReplace: the peer holds a tombstone
  // kWrite, kReplace. Must stay valid until the callback.
  std::span<const uint8_t> data;
  // CRC32C of data as its sender saw it. The store hashes data once, by granules, and refuses with
  // kCorrupt what does not combine to this.
  std::optional<uint32_t> data_crc;

  std::optional<OnceRecord> once;     // client, channel and sequence; the result is filled in here
  uint64_t acknowledged_through = 0;  // drops once's (client, channel) records up to this sequence
  std::vector<Incarnation> expired_clients;  // their records are dropped
  std::vector<OnceRecord> replace_once;      // kReplace: the peer's records

  bool use_reserve = false;  // forwarded, recovery and remove updates may take the last free space
};

struct Prepared {
  Version version;
  uint32_t length = 0;  // of the chunk in that version, bytes
  // The operation (by its once record) or the version was here already; nothing was written.
  bool duplicate = false;
};

struct VersionInfo {
  Version version;
  uint32_t length = 0;
  uint64_t truncate_version = 0;
  bool tombstone = false;
  bool operator==(const VersionInfo&) const = default;
};

struct ChunkInfo {
  ChunkId chunk;
  uint32_t chunk_size = 0;
  std::optional<VersionInfo> committed;
  std::vector<VersionInfo> pending;  // oldest first
  std::vector<OnceRecord> once;      // of the newest version
};

struct ReadRequest {
  ChunkId chunk;
  uint32_t offset = 0;
  uint32_t length = 0;             // bytes; `into` has room for them
  std::optional<Version> version;  // a version held; the committed one by default
  uint8_t* into = nullptr;
};

struct ReadResult {
  Version version;
  uint32_t size = 0;  // bytes in `into`; shorter than asked where the chunk ends
  uint32_t crc = 0;   // CRC32C of exactly those bytes, from verified granules
  uint32_t chunk_length = 0;
  uint64_t truncate_version = 0;
};

struct ChunkList {
  std::vector<ChunkInfo> chunks;  // in ChunkId order, tombstones included
  std::optional<ChunkId> next;    // where to go on; empty at the end
};

struct Space {
  uint64_t capacity = 0;
  uint64_t used = 0;      // blocks and log segments held, also by versions not yet released
  uint64_t free = 0;      // capacity - used
  uint64_t reserved = 0;  // of free, only for updates with use_reserve
};

struct StoreCounters {
  uint64_t chunks = 0;  // tombstones included
  uint64_t reads = 0;
  uint64_t updates = 0;
  uint64_t corrupt_granules = 0;
  uint64_t dropped_at_open = 0;  // unflushed versions whose bytes did not survive power loss
  uint64_t user_bytes = 0;       // given by kWrite and kReplace
  uint64_t block_bytes = 0;      // written to block files
  uint64_t log_bytes = 0;        // written to the small-write log
  uint64_t metadata_bytes = 0;   // keys and values given to the MetaKv
  uint64_t merged_chunks = 0;    // rewritten to a fresh block for having too many pieces
  uint64_t folded_chunks = 0;    // log pieces moved to their place in the block
  uint64_t failed_folds = 0;
  uint64_t flushes = 0;
};

struct ChunkStoreOptions {
  uint64_t capacity_bytes = 0;
  uint64_t reserve_bytes = 0;
  uint64_t record_cache_bytes = 64ULL << 20;  // decoded chunk records
  uint64_t log_segment_bytes = 0;             // 0: by the capacity, from 1 to 64 MiB
  uint32_t log_segments_max = 16;
  // Identifies the boot of this host. When it differs from the one of the last open (or is empty),
  // the page cache may have been lost and unflushed versions are verified.
  std::string boot_id;
};

class ChunkStore {
 public:
  template <typename T>
  using Callback = Function<void(Result<T>)>;
  using Done = Function<void(Status)>;

  // Rebuilds space and chunk maps from metadata. `disk` and `kv` must outlive the store, and run
  // their callbacks on the thread that uses it. kInvalidArgument: options; kCorrupt: metadata.
  static void Open(Disk& disk, MetaKv& kv, ChunkStoreOptions options,
                   Callback<std::unique_ptr<ChunkStore>> done);
  // Only when idle (every callback has run): see Close.
  ~ChunkStore();
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  // Flushes; the store may be destroyed from the callback's return on.
  void Close(Done done);

  // Persists the update as a pending version, one metadata batch. Updates of one chunk take effect
  // in call order. kConflict: base, or a version not above those held; kStaleHandle: truncate
  // version; kNotFound: truncate or remove of nothing; kNoSpace; kBusy: once records full;
  // kCorrupt: data_crc, or stored bytes that had to be read; kInvalidArgument; kUnavailable: an
  // earlier write or metadata error took the store out of service.
  void Prepare(const Update& update, Callback<Prepared> done);

  // Makes `version`, and all pending before it, the committed state; at once in memory, persisted
  // with the next batch. Does nothing where nothing is pending. kNotFound: other versions are.
  Status Commit(const ChunkId& chunk, Version version);

  // Drops the pending `version` and those based on it. kNotFound: not pending.
  Status Abandon(const ChunkId& chunk, Version version);

  // Drops a committed tombstone of that version with its once records. kNotFound: no such.
  void Forget(const ChunkId& chunk, Version version, Done done);

  // kNotFound: no chunk, or a tombstone; kConflict: that version is not held; kCorrupt: stored
  // bytes do not match their checksum. `into` may be scratched on error.
  void Read(const ReadRequest& request, Callback<ReadResult> done);

  void Stat(const ChunkId& chunk, Callback<ChunkInfo> done);
  void List(const ChunkId& from, size_t limit, Callback<ChunkList> done);

  // Everything acknowledged before the call survives power loss when the callback runs.
  void Flush(Done done);

  // Chunks that have pending versions; after open, what the replica protocol must decide.
  std::vector<ChunkId> PendingChunks() const;
  Space space() const;
  StoreCounters counters() const;

  class Impl;

 private:
  explicit ChunkStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fs3
