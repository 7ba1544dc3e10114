#include "fs3/native/frame/chunk_ops.h"

#include <bit>

#include "fs3/native/frame/frame.h"

namespace fs3 {
namespace {

constexpr uint32_t kChunkBytesMin = 64U << 10;
constexpr uint32_t kChunkBytesMax = 64U << 20;

bool InsideChunk(uint32_t offset, uint32_t length, uint32_t chunk_size) {
  return length <= chunk_size && offset <= chunk_size - length;
}

Status Refuse(const char* why) { return {Code::kInvalidArgument, why}; }

}  // namespace

Status CheckReads(std::span<const ReadOp> ops) {
  uint64_t total = 0;
  for (const ReadOp& op : ops) {
    if (op.reserved != 0) return Refuse("read: reserved field is not 0");
    if (!InsideChunk(op.offset, op.length, kChunkBytesMax)) return Refuse("read: beyond a chunk");
    total += op.length;
  }
  if (total > kBulkLengthMax) return Refuse("read: more data than a frame may carry");
  return {};
}

Status CheckWrites(std::span<const WriteOp> ops, uint64_t bulk_length) {
  uint64_t total = 0;
  for (const WriteOp& op : ops) {
    if (op.reserved != 0 || op.flags != 0) return Refuse("write: reserved field is not 0");
    if (!std::has_single_bit(op.chunk_size) || op.chunk_size < kChunkBytesMin ||
        op.chunk_size > kChunkBytesMax) {
      return Refuse("write: chunk size is not a power of two from 64 KiB to 64 MiB");
    }
    if (op.length == 0 || !InsideChunk(op.offset, op.length, op.chunk_size)) {
      return Refuse("write: beyond the chunk, or empty");
    }
    if (op.client == 0 || op.acknowledged_through >= op.sequence) {
      return Refuse("write: no valid client, sequence and acknowledged sequence");
    }
    total += op.length;
  }
  if (total != bulk_length) return Refuse("write: data and operations differ in length");
  return {};
}

Status CheckTruncates(std::span<const TruncateOp> ops) {
  for (const TruncateOp& op : ops) {
    if (op.reserved != 0) return Refuse("truncate: reserved field is not 0");
    if (op.length > kChunkBytesMax) return Refuse("truncate: beyond a chunk");
  }
  return {};
}

Status CheckRemoves(std::span<const RemoveOp> ops) {
  for (const RemoveOp& op : ops) {
    if (op.reserved != 0) return Refuse("remove: reserved field is not 0");
    if (op.limit == 0 || op.first_index > op.last_index) return Refuse("remove: empty range");
  }
  return {};
}

}  // namespace fs3
