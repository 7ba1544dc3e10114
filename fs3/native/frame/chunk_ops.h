// Bodies of the chunk operations, client -> storage (drawn in docs/design/formats.md).
//
// A request body is an OpsHeader and `count` ops of one type; the reply body is an OpsHeader and as
// many results, in the same order. Data is the frame's bulk: that of the ops one after the other.
// Ops of one frame may be for different chains of one shard, succeed or fail one by one, and are
// not ordered among each other.
//
// Structs are little-endian, naturally aligned, without padding, and copied as they are. An op
// whose size is not the expected one, or a reserved field that is not 0, is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/frame/little_endian.h"
#include "fs3/native/frame/methods.h"

namespace fs3 {

inline constexpr uint16_t kMethodChunkRead = kMethodChunkFirst + 0;
inline constexpr uint16_t kMethodChunkWrite = kMethodChunkFirst + 1;
inline constexpr uint16_t kMethodChunkTruncate = kMethodChunkFirst + 2;
inline constexpr uint16_t kMethodChunkRemove = kMethodChunkFirst + 3;
inline constexpr uint16_t kMethodChunkQueryLast = kMethodChunkFirst + 4;
inline constexpr uint16_t kMethodChunkFlush = kMethodChunkFirst + 5;
inline constexpr uint16_t kMethodChunkStat = kMethodChunkFirst + 6;
inline constexpr uint16_t kMethodSpace = kMethodChunkFirst + 7;  // no ops; SpaceReply per target

inline constexpr size_t kOpsPerFrameMax = 1024;
inline constexpr uint32_t kWireNoCut = 0xFFFFFFFF;

using WireChunkId = std::array<uint8_t, ChunkId::kSize>;  // big-endian, as ChunkId::Encode

struct WireVersion {
  uint64_t chain_version = 0;
  uint64_t sequence = 0;

  static WireVersion From(Version v) { return {v.chain_version, v.sequence}; }
  Version Get() const { return {chain_version, sequence}; }
};

struct OpsHeader {
  uint32_t count = 0;
  uint32_t op_size = 0;
};
static_assert(sizeof(OpsHeader) == 8);

// What every chunk op says about who may serve it. `capability` is the handle that the connection
// registered for the inode; 0 where the cluster does not ask for one.
struct ReadOp {
  WireChunkId chunk{};
  uint32_t chain = 0;
  uint32_t capability = 0;
  uint64_t chain_version = 0;
  uint64_t truncate_version = 0;  // of the inode; an older one than the chunk's is kStaleHandle
  uint32_t offset = 0;
  uint32_t length = 0;
  uint32_t cut = kWireNoCut;  // bytes from here on are gone if truncate_version is new to the chunk
  uint32_t reserved = 0;
};
static_assert(sizeof(ReadOp) == 56);

// A chunk that does not exist is read as one of length 0.
struct ReadReply {
  uint32_t code = 0;
  uint32_t length = 0;  // bytes in the bulk: shorter than asked where the chunk ends
  WireVersion version;
  uint32_t crc32c = 0;  // of those bytes
  uint32_t reserved = 0;
};
static_assert(sizeof(ReadReply) == 32);

struct WriteOp {
  WireChunkId chunk{};
  uint32_t chain = 0;
  uint32_t capability = 0;
  uint64_t chain_version = 0;
  uint64_t truncate_version = 0;
  uint32_t offset = 0;
  uint32_t length = 0;
  uint32_t cut = kWireNoCut;
  uint32_t crc32c = 0;  // of the data
  // Names the update for ever: a retry carries the same three and has no second effect.
  uint64_t client = 0;
  uint64_t sequence = 0;
  uint64_t acknowledged_through = 0;
  uint32_t channel = 0;
  uint32_t chunk_size = 0;
  uint32_t flags = 0;  // none yet
  uint32_t reserved = 0;
};
static_assert(sizeof(WriteOp) == 96);

// Cuts the chunk to `length`. Applies to chunks that have seen an older truncate version only, so
// it may be repeated.
struct TruncateOp {
  WireChunkId chunk{};
  uint32_t chain = 0;
  uint32_t capability = 0;
  uint64_t chain_version = 0;
  uint64_t truncate_version = 0;
  uint32_t length = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(TruncateOp) == 48);

struct UpdateReply {
  uint32_t code = 0;
  uint32_t length = 0;  // of the chunk
  WireVersion version;
};
static_assert(sizeof(UpdateReply) == 24);

// Removes the chunks first_index..last_index of an inode that this chain holds and that have seen
// an older truncate version only; at most `limit` in one call.
struct RemoveOp {
  uint64_t inode = 0;
  uint32_t chain = 0;
  uint32_t capability = 0;
  uint64_t chain_version = 0;
  uint64_t truncate_version = 0;
  uint32_t first_index = 0;
  uint32_t last_index = 0;
  uint32_t limit = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(RemoveOp) == 48);

struct RemoveReply {
  uint32_t code = 0;
  uint32_t removed = 0;
  uint32_t more = 0;  // 1: go on at next_index
  uint32_t next_index = 0;
};
static_assert(sizeof(RemoveReply) == 16);

// The last chunk of an inode that this chain holds. Only the tail answers.
struct QueryLastOp {
  uint64_t inode = 0;
  uint32_t chain = 0;
  uint32_t capability = 0;
  uint64_t chain_version = 0;
};
static_assert(sizeof(QueryLastOp) == 24);

struct QueryLastReply {
  uint32_t code = 0;
  uint32_t found = 0;  // 0 or 1
  uint32_t index = 0;
  uint32_t length = 0;  // of that chunk
};
static_assert(sizeof(QueryLastReply) == 16);

// Everything this replica of the chain has acknowledged survives power loss.
struct FlushOp {
  uint32_t chain = 0;
  uint32_t capability = 0;
  uint64_t chain_version = 0;
};
static_assert(sizeof(FlushOp) == 16);

struct FlushReply {
  uint32_t code = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FlushReply) == 8);

// What this very replica holds committed; for checkers, so any member answers.
struct StatOp {
  WireChunkId chunk{};
  uint32_t chain = 0;
  uint32_t capability = 0;
};
static_assert(sizeof(StatOp) == 24);

struct StatReply {
  uint32_t code = 0;
  uint32_t length = 0;
  WireVersion version;
  uint64_t truncate_version = 0;
  uint32_t chunk_size = 0;
  uint32_t live = 0;  // 0: a tombstone
};
static_assert(sizeof(StatReply) == 40);

struct SpaceReply {
  uint64_t target = 0;
  uint64_t capacity = 0;
  uint64_t used = 0;
  uint64_t free = 0;
  uint64_t chunks = 0;
};
static_assert(sizeof(SpaceReply) == 40);

// The ops of a body. kInvalidArgument when the count, the size of an op or the length is not right.
template <typename Op>
Result<std::vector<Op>> DecodeOps(std::span<const uint8_t> body) {
  static_assert(std::is_trivially_copyable_v<Op> && std::has_unique_object_representations_v<Op>);
  if (body.size() < sizeof(OpsHeader)) return Status(Code::kInvalidArgument, "body too short");
  const auto header = LoadLittleEndian<OpsHeader>(body.data());
  if (header.op_size != sizeof(Op) || header.count > kOpsPerFrameMax ||
      body.size() != sizeof(OpsHeader) + header.count * sizeof(Op)) {
    return Status(Code::kInvalidArgument, "ops of unexpected size or number");
  }
  std::vector<Op> ops(header.count);
  if (!ops.empty())
    std::memcpy(ops.data(), body.data() + sizeof(OpsHeader), ops.size() * sizeof(Op));
  return ops;
}

template <typename Op>
std::vector<uint8_t> EncodeOps(std::span<const Op> ops) {
  const OpsHeader header{static_cast<uint32_t>(ops.size()), sizeof(Op)};
  std::vector<uint8_t> body(sizeof(OpsHeader) + ops.size_bytes());
  StoreLittleEndian(body.data(), header);
  if (!ops.empty()) std::memcpy(body.data() + sizeof(OpsHeader), ops.data(), ops.size_bytes());
  return body;
}

// kInvalidArgument unless every field is within its bounds; `bulk_length` is the frame's.
Status CheckReads(std::span<const ReadOp> ops);
Status CheckWrites(std::span<const WriteOp> ops, uint64_t bulk_length);
Status CheckTruncates(std::span<const TruncateOp> ops);
Status CheckRemoves(std::span<const RemoveOp> ops);

}  // namespace fs3
