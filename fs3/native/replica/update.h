// One change of one chunk on its way through a chain, and what the machine is told about a chunk.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fs3/native/base/ids.h"

namespace fs3::replica {

enum class UpdateKind : uint8_t {
  kWrite = 1,     // [offset, offset + length) gets the payload
  kTruncate = 2,  // bytes from `length` on are gone
  kRemove = 3,    // the chunk becomes a tombstone
  kReplace = 4,   // the whole chunk, its records included, becomes what is sent along
};

// No cut is pending for the chunk.
inline constexpr uint32_t kNoCut = 0xFFFFFFFF;

// Names one update of one client for ever: a retry carries the same three. A channel has one update
// under way at a time, so whatever comes later with a lower sequence than one recorded is a stray
// copy. The client will never again ask for a result up to `acknowledged_through`. A client of 0 is
// the chain itself: nobody asks for the result.
struct UpdateTag {
  Incarnation client = 0;
  uint32_t channel = 0;
  uint64_t sequence = 0;
  uint64_t acknowledged_through = 0;
  bool Names(const UpdateTag& other) const {
    return client != 0 && client == other.client && channel == other.channel &&
           sequence == other.sequence;
  }
};

// The result of an update, stored with its chunk so that a retry gets the first answer.
struct UpdateRecord {
  Incarnation client = 0;
  uint32_t channel = 0;
  uint64_t sequence = 0;
  Version version;
  uint32_t length = 0;  // of the chunk after the update
};

// With as many in a chunk the head answers kBusy; one is never evicted while it may be asked for.
inline constexpr size_t kRecordsMax = 64;

// What the shell keeps for an update (its data); the machine only carries it.
struct Payload {
  virtual ~Payload() = default;
};

struct Update {
  ChunkId chunk;
  Version version;
  UpdateKind kind = UpdateKind::kWrite;
  UpdateTag tag;
  uint32_t offset = 0;
  uint32_t length = 0;    // kWrite: of the data; kTruncate: of the chunk afterwards
  uint32_t cut = kNoCut;  // bytes from here on go first when truncate_version is new to the chunk
  uint32_t chunk_size = 0;
  uint64_t truncate_version = 0;
  std::vector<Incarnation> expired_clients;  // their records go
  std::shared_ptr<Payload> payload;
};

// The committed state of a chunk; a tombstone is a chunk that is not `live`.
struct ChunkState {
  Version version;
  uint32_t length = 0;
  bool live = false;
  uint32_t chunk_size = 0;
  uint64_t truncate_version = 0;
  std::vector<UpdateRecord> records;
};

struct Uncommitted {
  ChunkId chunk;
  Version version;
};

}  // namespace fs3::replica
