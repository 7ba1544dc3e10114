// Bodies of the messages between the members of a chain, storage -> storage (drawn in
// docs/design/formats.md). Each starts with a ChainHeader that names the receiver and the chain
// version; a receiver that is not that target in that version answers kStaleRouting to all of it.
//
// FORWARD     header, ForwardOp x count, then for each op in turn its records and its expired
//             clients. Bulk: the data of the ops one after the other.
//             Reply: OpsHeader, AcknowledgeReply x count, sent when the last of them is decided.
// PERSISTED   header, ChunkVersion x count. Reply: empty.
// COMMITTED   header, WireChunkId x count. Reply: OpsHeader, CommittedReply x count.
// SYNC_DONE   header. Reply: empty, when everything is there and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fs3/native/base/ids.h"
#include "fs3/native/base/status.h"
#include "fs3/native/frame/chunk_ops.h"

namespace fs3 {

inline constexpr uint16_t kMethodForward = kMethodReplicaFirst + 0;
inline constexpr uint16_t kMethodPersisted = kMethodReplicaFirst + 1;
inline constexpr uint16_t kMethodCommitted = kMethodReplicaFirst + 2;
inline constexpr uint16_t kMethodSyncDone = kMethodReplicaFirst + 3;

inline constexpr uint32_t kWireRecordsMax = 64;         // per chunk
inline constexpr uint32_t kWireExpiredClientsMax = 64;  // per op

struct ChainHeader {
  uint64_t target = 0;      // the receiver
  uint64_t generation = 0;  // of the receiver: a recreated target is never taken for the old one
  uint64_t chain_version = 0;
  uint32_t chain = 0;
  uint32_t count = 0;
  uint32_t op_size = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(ChainHeader) == 40);

inline constexpr uint8_t kForwardUpstreamPersisted = 1U << 0;
inline constexpr uint8_t kForwardTombstone = 1U << 1;  // kReplace only
inline constexpr uint8_t kForwardFlagsKnown = kForwardUpstreamPersisted | kForwardTombstone;

struct ForwardOp {
  WireChunkId chunk{};
  WireVersion version;
  uint64_t truncate_version = 0;
  uint64_t client = 0;  // 0: the chain itself
  uint64_t sequence = 0;
  uint64_t acknowledged_through = 0;
  uint32_t channel = 0;
  uint8_t kind = 0;  // replica::UpdateKind
  uint8_t flags = 0;
  uint16_t record_count = 0;
  uint32_t offset = 0;
  uint32_t length = 0;  // write: of the data; truncate: of the chunk afterwards
  uint32_t chunk_size = 0;
  uint32_t crc32c = 0;       // of the data
  uint32_t data_length = 0;  // bytes in the bulk
  uint32_t expired_count = 0;
};
static_assert(sizeof(ForwardOp) == 96);

struct WireRecord {
  uint64_t client = 0;
  uint64_t sequence = 0;
  WireVersion version;
  uint32_t channel = 0;
  uint32_t length = 0;
};
static_assert(sizeof(WireRecord) == 40);

struct AcknowledgeReply {
  uint32_t code = 0;
  uint32_t full = 0;  // 1: a member from here on is short of space
};
static_assert(sizeof(AcknowledgeReply) == 8);

struct ChunkVersion {
  WireChunkId chunk{};
  WireVersion version;
};
static_assert(sizeof(ChunkVersion) == 32);

struct CommittedReply {
  uint32_t code = 0;
  uint32_t reserved = 0;
  WireVersion version;  // {0, 0}: no such chunk
};
static_assert(sizeof(CommittedReply) == 24);

struct ForwardItem {
  ForwardOp op;
  std::vector<WireRecord> records;
  std::vector<uint64_t> expired_clients;
};

struct ForwardMessage {
  ChainHeader header;
  std::vector<ForwardItem> items;
};

// Counts and sizes in the header and the ops are filled in.
std::vector<uint8_t> EncodeForward(ChainHeader header, std::span<const ForwardItem> items);

// kInvalidArgument unless every field is within its bounds and all lengths add up.
Result<ForwardMessage> DecodeForward(std::span<const uint8_t> body, uint64_t bulk_length);

template <typename Op>
std::vector<uint8_t> EncodeChainOps(ChainHeader header, std::span<const Op> ops) {
  header.count = static_cast<uint32_t>(ops.size());
  header.op_size = sizeof(Op);
  std::vector<uint8_t> body(sizeof(header) + ops.size_bytes());
  StoreLittleEndian(body.data(), header);
  if (!ops.empty()) std::memcpy(body.data() + sizeof(header), ops.data(), ops.size_bytes());
  return body;
}

// kInvalidArgument unless the body is a header alone or starts with one.
Result<ChainHeader> DecodeChainHeader(std::span<const uint8_t> body);

template <typename Op>
Result<std::vector<Op>> DecodeChainOps(std::span<const uint8_t> body) {
  const auto header = DecodeChainHeader(body);
  if (!header.ok()) return header.status();
  const uint32_t count = header.value().count;
  if (header.value().op_size != sizeof(Op) || count > kOpsPerFrameMax ||
      body.size() != sizeof(ChainHeader) + count * sizeof(Op)) {
    return Status(Code::kInvalidArgument, "chain message of unexpected size");
  }
  std::vector<Op> ops(count);
  if (count > 0) std::memcpy(ops.data(), body.data() + sizeof(ChainHeader), count * sizeof(Op));
  return ops;
}

}  // namespace fs3
